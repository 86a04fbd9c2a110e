// One generation call from its arrival to its status: who it is, whether it has been told to stop, and its output.
// Three kinds of threads touch it: the transport's (the client leaves), ingress (reads the request, submits) and
// delivery (sends the output). Whoever stops it first says why.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/base/mutex.h"
#include "engine/engine.h"
#include "engine/request.h"
#include "server/calls/call_output.h"
#include "server/calls/generation.h"
#include "server/calls/reply_sink.h"

namespace sluice {

// Where a call comes from, as its transport knows it.
struct Origin {
  std::string peer = {};               // the connection
  std::string header_request_id = {};  // of the client or a proxy; empty if there is none
  int64_t arrival_ns = 0;              // Clock
  std::optional<int64_t> deadline_ns = {};
};

class Call : public std::enable_shared_from_this<Call> {
 public:
  // What a sequence of the engine carries as Request::context; keeps the call.
  struct Choice {
    Call* call = nullptr;
    int index = 0;
  };

  // `started`: as its client is told of it. `cancel_key`: the caller's own request_id, empty if CancelRequest knows the
  // call by its server id only. `user`: for the log.
  Call(v1::Started started, Origin origin, std::string cancel_key, std::string user, std::shared_ptr<ReplySink> reply)
      : started_(std::move(started)),
        origin_(std::move(origin)),
        cancel_key_(std::move(cancel_key)),
        user_(std::move(user)),
        reply_(std::move(reply)) {}

  const std::string& id() const { return started_.server_request_id(); }  // cannot be guessed
  const Origin& origin() const { return origin_; }
  const std::string& model() const { return started_.model(); }  // its id
  const std::string& cancel_key() const { return cancel_key_; }

  // Any thread: the call is to end with `status` (not OK); its sequences are cancelled at once. Only the first call of
  // Stop has an effect.
  void Stop(FinishReason reason, absl::Status status) ABSL_LOCKS_EXCLUDED(mutex_);
  // Why it was stopped; OK if it was not.
  absl::Status stop_status() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Ingress, once: gives `engine` one sequence for each choice. All that is pointed to outlives the call; `tokenizer`
  // may be null.
  absl::Status Submit(Generation generation, Engine* engine, const Tokenizer* tokenizer, Metrics* metrics)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Its sequences are the engine's: the delivery thread will hear of their ends.
  bool submitted() const ABSL_LOCKS_EXCLUDED(mutex_);

  // The delivery thread: what the engine says of a choice (CallOutput::Take), or that it will say nothing more. True at
  // the end of the last choice.
  bool Take(int choice, SequenceOutput output, int64_t now_ns) ABSL_LOCKS_EXCLUDED(mutex_);
  void Abandon(absl::Status why, int64_t now_ns) ABSL_LOCKS_EXCLUDED(mutex_);
  // The same thread, after the end, once: what the call ends with.
  absl::Status Complete() { return output_->Complete(stop_status()); }

  // Once: tells the log and then the client.
  void Close(const absl::Status& status);

 private:
  std::vector<Request> Requests();

  const v1::Started started_;
  const Origin origin_;
  const std::string cancel_key_;
  const std::string user_;
  const std::shared_ptr<ReplySink> reply_;

  // Constant once submitted.
  Generation generation_;
  Engine* engine_ = nullptr;
  std::vector<Choice> choices_;
  std::unique_ptr<CallOutput> output_;  // what it points to is of the delivery thread

  mutable Mutex mutex_;
  absl::Status stop_status_ ABSL_GUARDED_BY(mutex_);
  FinishReason stop_reason_ ABSL_GUARDED_BY(mutex_) = FinishReason::kNone;
  std::vector<SequenceId> ids_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice
