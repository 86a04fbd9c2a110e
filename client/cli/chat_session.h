// A conversation: its messages, the flags of the next answer, and how they are kept in a file.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/cli/answer.h"
#include "client/cli/generate_options.h"
#include "client/cpp/client.h"

namespace sluice::cli {

class ChatSession {
 public:
  ChatSession(std::unique_ptr<client::Client> client, GenerateFlags flags, client::CallOptions options);

  // Replaces the system message; empty removes it.
  void SetSystem(const std::string& text);

  // Variables for the chat template, the text of a JSON object, which the server reads; empty: none.
  void SetTemplateKwargs(std::string json) { template_kwargs_json_ = std::move(json); }

  // The model that will answer, asked of the server within `timeout`. NOT_FOUND: it has none of that name.
  absl::StatusOr<v1::Model> FindModel(std::chrono::milliseconds timeout) const;

  // Sends the conversation and `text` and prints the answer. An answer that was interrupted stays in the conversation
  // as far as it came; a question that failed does not.
  StreamResult Ask(const std::string& text);

  void Clear();  // all but the system message
  const std::vector<v1::ChatMessage>& messages() const { return messages_; }
  GenerateFlags& flags() { return flags_; }

  bool HasAnswer() const { return !messages_.empty() && messages_.back().role() == v1::ROLE_ASSISTANT; }

  // The conversation as JSON: {"messages": [{"role", "content"}, ...]}, readable by its owner only. Errors name the
  // file, and where in it.
  absl::Status Save(const std::string& path) const;
  absl::Status Load(const std::string& path);

 private:
  const std::unique_ptr<client::Client> client_;
  GenerateFlags flags_;
  const client::CallOptions options_;
  std::string template_kwargs_json_;
  std::vector<v1::ChatMessage> messages_;
};

}  // namespace sluice::cli
