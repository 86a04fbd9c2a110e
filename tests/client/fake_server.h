// A server in this process that speaks the whole contract, answers as it is told and remembers what it was asked.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sluice/v1/generation.pb.h"
#include "sluice/v1/model.pb.h"

namespace sluice::client {

// The end of a call that fails. Without a reason it carries no details, like an error of gRPC itself.
struct Failure {
  int code = 0;
  std::string message;
  std::string reason = {};
  std::vector<std::pair<std::string, std::string>> fields = {};  // BadRequest: field, description
  std::optional<int> retry_ms = {};                              // RetryInfo
};

// What a call of GenerationService does: events, with a pause before each, then its end.
struct Answer {
  std::vector<v1::GenerationEvent> events;  // token ids only reach those who ask for them
  std::chrono::milliseconds pause{0};
  bool hang = false;  // after the events, until the client cancels
  std::optional<Failure> failure;
};

// started, one delta of one token per text, choice_finished with STOP, completed.
Answer Say(const std::vector<std::string>& texts);
// The same without its end: it hangs after the texts.
Answer SayAndHang(const std::vector<std::string>& texts);
Answer Fail(Failure failure);

// What a call of GenerationService asked.
struct Call {
  std::string method;
  v1::StreamCompleteRequest complete;  // for Complete and StreamComplete
  v1::StreamChatRequest chat;          // for Chat and StreamChat
  std::multimap<std::string, std::string> metadata;
  std::optional<std::chrono::milliseconds> deadline;  // what was left of it
  bool cancelled = false;                             // the server saw that
};

// Thread-safe. Serves all services, AdminService too, on one loopback port.
class FakeServer {
 public:
  static std::unique_ptr<FakeServer> Start();
  virtual ~FakeServer() = default;

  virtual std::string address() const = 0;

  // Calls of GenerationService take these in order; the last one stays.
  virtual void Script(std::vector<Answer> answers) = 0;
  virtual std::vector<Call> calls() const = 0;
  // Whether so many calls have come, and been seen cancelled; false after 30 s.
  virtual bool WaitForCalls(size_t n) const = 0;
  virtual bool WaitForCancels(size_t n) const = 0;

  // Every other method fails so from now on, health included; nullopt ends that.
  virtual void FailOthers(std::optional<Failure> failure) = 0;
  // Every other method but health's takes so long.
  virtual void DelayOthers(std::chrono::milliseconds delay) = 0;
  // "" is SERVING at first; a service that was never set is unknown.
  virtual void SetHealth(const std::string& service, bool serving) = 0;
  // Of the model: READY at first. A model that is LOADING says nothing else about itself, and there is no load.
  virtual void SetState(v1::ModelState state) = 0;
  virtual void SetChatTemplate(bool has_chat_template) = 0;  // true at first
};

}  // namespace sluice::client
