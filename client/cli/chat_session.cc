#include "client/cli/chat_session.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
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

// "line 3, column 7" of the byte that a parser counts as number `byte`, from 1.
std::string PlaceOf(size_t byte, const std::string& text) {
  const std::string before = text.substr(0, byte > 0 ? byte - 1 : 0);
  const size_t line_start = before.rfind('\n') == std::string::npos ? 0 : before.rfind('\n') + 1;
  return absl::StrCat("line ", std::count(before.begin(), before.end(), '\n') + 1, ", column ",
                      before.size() - line_start + 1);
}

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

absl::StatusOr<v1::Model> ChatSession::FindModel(std::chrono::milliseconds timeout) const {
  client::CallOptions options = options_;
  if (!options.timeout) options.timeout = timeout;
  absl::StatusOr<v1::ListModelsResponse> response = client_->ListModels(options);
  if (!response.ok()) return response.status();
  for (const v1::Model& model : response->models()) {
    const bool alias = std::count(model.aliases().begin(), model.aliases().end(), flags_.model) > 0;
    if (flags_.model.empty() || flags_.model == model.id() || alias) return model;
  }
  return absl::NotFoundError(absl::StrCat("the server has no model '", flags_.model, "'"));
}

StreamResult ChatSession::Ask(const std::string& text) {
  v1::StreamChatRequest request;
  request.set_model(flags_.model);
  request.set_request_id(flags_.request_id);
  for (const auto& message : messages_) *request.add_messages() = message;
  *request.add_messages() = Message(v1::ROLE_USER, text);
  request.set_chat_template_kwargs_json(template_kwargs_json_);
  flags_.Fill(request.mutable_options());
  StreamResult result = RunStream(
      [&](client::StreamHandler handler) { return client_->StreamChat(request, std::move(handler), options_); },
      flags_);
  const bool came = result.code == kExitOk || result.code == kExitInterrupted;
  if (came && !result.answer.choices().empty()) {
    messages_.push_back(Message(v1::ROLE_USER, text));
    messages_.push_back(Message(v1::ROLE_ASSISTANT, result.answer.choices(0).text()));
  }
  return result;
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
  errno = 0;
  std::ofstream out(path);
  std::error_code ignored;  // a file system without permissions
  std::filesystem::permissions(path, kOwnerOnly, ignored);
  out << object.dump(2) << "\n";
  out.close();
  if (!out) return absl::UnavailableError(absl::StrCat("cannot write ", path, ": ", std::strerror(errno)));
  return absl::OkStatus();
}

absl::Status ChatSession::Load(const std::string& path) {
  std::ifstream in(path);
  if (!in || std::filesystem::is_directory(path)) return absl::NotFoundError(absl::StrCat("cannot read ", path));
  const std::string text(std::istreambuf_iterator<char>(in), {});
  nlohmann::json object;
  try {
    object = nlohmann::json::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": not valid JSON at ", PlaceOf(error.byte, text)));
  }
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
