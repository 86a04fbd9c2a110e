#include "client/cli/chat_session.h"

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/answer.h"
#include "client/cli/terminal.h"

namespace sluice::cli {
namespace {

v1::ChatMessage Message(v1::Role role, const std::string& text) {
  v1::ChatMessage message;
  message.set_role(role);
  message.add_content()->set_text(text);
  return message;
}

const std::map<std::string, v1::Role>& Roles() {
  static const auto& roles = *new std::map<std::string, v1::Role>{{"system", v1::ROLE_SYSTEM},
                                                                  {"developer", v1::ROLE_DEVELOPER},
                                                                  {"user", v1::ROLE_USER},
                                                                  {"assistant", v1::ROLE_ASSISTANT}};
  return roles;
}

constexpr auto kOwnerOnly = std::filesystem::perms::owner_read | std::filesystem::perms::owner_write;

std::string RoleName(v1::Role role) {
  for (const auto& [name, value] : Roles()) {
    if (value == role) return name;
  }
  return "";
}

}  // namespace

ChatSession::ChatSession(std::unique_ptr<client::Client> client, GenerateFlags flags, client::CallOptions options)
    : client_(std::move(client)), flags_(std::move(flags)), options_(std::move(options)) {}

void ChatSession::SetSystem(const std::string& text) {
  if (!messages_.empty() && messages_[0].role() == v1::ROLE_SYSTEM) messages_.erase(messages_.begin());
  if (!text.empty()) messages_.insert(messages_.begin(), Message(v1::ROLE_SYSTEM, text));
}

int ChatSession::Ask(const std::string& text) {
  v1::StreamChatRequest request;
  request.set_model(flags_.model);
  request.set_request_id(flags_.request_id);
  for (const auto& message : messages_) *request.add_messages() = message;
  *request.add_messages() = Message(v1::ROLE_USER, text);
  flags_.Fill(request.mutable_options());
  client::Generation generation;
  const int code = RunStream(
      [&](client::StreamHandler handler) { return client_->StreamChat(request, std::move(handler), options_); }, flags_,
      &generation);
  if ((code == kExitOk || code == kExitInterrupted) && !generation.choices.empty()) {
    messages_.push_back(Message(v1::ROLE_USER, text));
    messages_.push_back(Message(v1::ROLE_ASSISTANT, generation.choices[0].text()));
  }
  return code;
}

void ChatSession::Clear() {
  const bool system = !messages_.empty() && messages_[0].role() == v1::ROLE_SYSTEM;
  messages_.resize(system ? 1 : 0);
}

absl::Status ChatSession::Save(const std::string& path) const {
  nlohmann::ordered_json object;
  object["messages"] = nlohmann::ordered_json::array();
  for (const auto& message : messages_) {
    object["messages"].push_back({{"role", RoleName(message.role())}, {"content", message.content(0).text()}});
  }
  std::ofstream out(path);
  std::error_code ignored;  // a file system without permissions
  std::filesystem::permissions(path, kOwnerOnly, ignored);
  out << object.dump(2) << "\n";
  out.close();
  if (!out) return absl::UnavailableError(absl::StrCat("cannot write ", path));
  return absl::OkStatus();
}

absl::Status ChatSession::Load(const std::string& path) {
  std::ifstream in(path);
  if (!in || std::filesystem::is_directory(path)) return absl::NotFoundError(absl::StrCat("cannot read ", path));
  const nlohmann::json object = nlohmann::json::parse(in, nullptr, false);
  if (!object.is_object() || !object.contains("messages") || !object["messages"].is_array()) {
    return absl::InvalidArgumentError(absl::StrCat(path, " holds no conversation: expected {\"messages\": [...]}"));
  }
  std::vector<v1::ChatMessage> messages;
  for (const auto& entry : object["messages"]) {
    const bool shaped = entry.is_object() && entry.contains("role") && entry["role"].is_string() &&
                        entry.contains("content") && entry["content"].is_string() &&
                        Roles().count(entry["role"].get<std::string>()) == 1;
    if (!shaped) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": each message needs a role (system, developer, user, assistant) and a text content"));
    }
    messages.push_back(Message(Roles().at(entry["role"]), entry["content"]));
  }
  messages_ = std::move(messages);
  return absl::OkStatus();
}

}  // namespace sluice::cli
