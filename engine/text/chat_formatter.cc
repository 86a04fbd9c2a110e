#include "engine/text/chat_formatter.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/status_macros.h"

namespace sluice {
namespace {

using Fate = RoleTraits::Fate;

// Words that no template looks for.
constexpr absl::string_view kFirstPart = "quillon";
constexpr absl::string_view kSecondPart = "marbeth";

// For three short messages; trials are a part of loading, whatever the template does.
jinja::Limits TrialLimits(jinja::Limits limits) {
  limits.max_steps = std::min<int64_t>(limits.max_steps, 200'000);
  limits.max_built_bytes = std::min(limits.max_built_bytes, size_t{8} << 20);
  limits.max_output_bytes = std::min(limits.max_output_bytes, size_t{1} << 20);
  return limits;
}

ChatMessage Message(ChatRole role, absl::string_view text) {
  ChatMessage message;
  message.role = std::string(NameOf(role));
  message.content = std::string(text);
  return message;
}

// Where a message of the role usually stands, and which one it is. With `calls` a tool's answer follows a call of it.
std::pair<ChatInputs, size_t> Trial(ChatRole role, bool calls, bool tools) {
  ChatInputs inputs;
  if (tools) {
    inputs.tools_json =
        R"([{"type": "function", "function": {"name": "f", "description": "d", "parameters": )"
        R"({"type": "object", "properties": {"x": {"type": "integer"}}}}}])";
  }
  inputs.bos_token = std::string("<s>");
  inputs.eos_token = std::string("</s>");
  inputs.now = absl::CivilSecond(2024, 1, 1);
  const ChatMessage tried = Message(role, kFirstPart);
  switch (role) {
    case ChatRole::kSystem:
    case ChatRole::kDeveloper:
      inputs.messages = {tried, Message(ChatRole::kUser, "hi")};
      return {inputs, 0};
    case ChatRole::kUser:
      inputs.messages = {tried};
      return {inputs, 0};
    case ChatRole::kAssistant:
      inputs.messages = {Message(ChatRole::kUser, "hi"), tried, Message(ChatRole::kUser, "go on")};
      return {inputs, 1};
    case ChatRole::kTool:
      break;
  }
  inputs.messages = {Message(ChatRole::kUser, "hi"), Message(ChatRole::kAssistant, "let me see"), tried};
  if (calls) {
    inputs.messages[1].tool_calls_json =
        R"([{"id": "abcdefghi", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}}])";
    inputs.messages[2].tool_call_id = std::string("abcdefghi");
    inputs.messages[2].name = std::string("f");
  }
  return {inputs, 2};
}

bool IsUnseen(const RenderedChat& chat, size_t message) {
  return std::find(chat.unseen_messages.begin(), chat.unseen_messages.end(), message) != chat.unseen_messages.end();
}

// `parts`: as a list of two, both of which must come out, and nothing else of the list.
Fate Try(const ChatTemplate& parsed, const jinja::Limits& limits, ChatInputs inputs, size_t tried, bool parts,
         std::string* complaint) {
  if (parts) {
    inputs.messages[tried].content.reset();
    inputs.messages[tried].text_parts = {std::string(kFirstPart), std::string(kSecondPart)};
  }
  const auto rendered = parsed.Render(inputs, limits);
  if (!rendered.ok()) {
    *complaint = std::string(rendered.status().message());
    return Fate::kRefused;
  }
  if (!parts) return IsUnseen(*rendered, tried) ? Fate::kDropped : Fate::kShown;
  const bool both = absl::StrContains(rendered->text, kFirstPart) && absl::StrContains(rendered->text, kSecondPart);
  return both && !rendered->prints_part_lists ? Fate::kShown : Fate::kDropped;
}

}  // namespace

absl::string_view NameOf(ChatRole role) {
  static constexpr absl::string_view kNames[kNumChatRoles] = {"system", "developer", "user", "assistant", "tool"};
  return kNames[static_cast<size_t>(role)];
}

absl::StatusOr<ChatFormatter> ChatFormatter::Create(absl::string_view source, const jinja::Limits& limits) {
  SLUICE_ASSIGN_OR_RETURN(ChatTemplate parsed, ChatTemplate::Parse(source, limits));
  ChatFormatter formatter(std::move(parsed));
  formatter.Probe(TrialLimits(limits));
  return formatter;
}

void ChatFormatter::Probe(const jinja::Limits& limits) {
  auto try_all = [&](bool tools) {
    for (const ChatRole role : kChatRoles) {
      RoleTraits& traits = traits_[static_cast<size_t>(role)];
      for (const bool calls : {false, true}) {
        if (calls && role != ChatRole::kTool) break;
        const auto [inputs, tried] = Trial(role, calls, tools);
        std::string ignored;
        traits.complaint.clear();
        const Fate fate = Try(template_, limits, inputs, tried, /*parts=*/false, &traits.complaint);
        traits.reads_parts = Try(template_, limits, inputs, tried, /*parts=*/true, &ignored) == Fate::kShown;
        traits.needs_parts = traits.reads_parts && fate != Fate::kShown;
        traits.fate = traits.needs_parts ? Fate::kShown : fate;
        if (traits.fate == Fate::kShown) break;
      }
    }
  };
  try_all(/*tools=*/false);
  // Some templates work with tools only.
  if (traits(ChatRole::kUser).fate == Fate::kRefused) try_all(/*tools=*/true);
}

ChatRole ChatFormatter::RoleShown(ChatRole role) const {
  const bool as_system = role == ChatRole::kDeveloper && traits(role).fate != Fate::kShown &&
                         traits(ChatRole::kSystem).fate == Fate::kShown;
  return as_system ? ChatRole::kSystem : role;
}

bool ChatFormatter::Takes(ChatRole role) const {
  if (traits(ChatRole::kUser).fate == Fate::kRefused) return true;  // it wants what no trial has: nothing is known
  if (role == ChatRole::kDeveloper) return traits(RoleShown(role)).fate == Fate::kShown;
  return traits(role).fate == Fate::kShown || (role == ChatRole::kTool && traits(role).fate == Fate::kRefused);
}

std::vector<std::string> ChatFormatter::Warnings() const {
  std::vector<std::string> warnings = template_.warnings();
  std::vector<absl::string_view> left_out;
  for (const ChatRole role : kChatRoles) {
    if (!Takes(role)) left_out.push_back(NameOf(role));
  }
  if (!left_out.empty()) {
    warnings.push_back(absl::StrCat("messages of these roles have no place: ", absl::StrJoin(left_out, ", ")));
  }
  return warnings;
}

// Roles that can be refused by what the trial found. Whether a tool's answer or a later system message has a place
// depends on the conversation: there the render decides.
absl::Status ChatFormatter::CheckRoles(const Conversation& conversation) const {
  for (size_t i = 0; i < conversation.messages.size(); ++i) {
    const ChatRole role = conversation.messages[i].role;
    const bool first_system = role == ChatRole::kSystem && i == 0 && traits(role).fate == Fate::kRefused;
    if ((!first_system && role != ChatRole::kDeveloper) || Takes(role)) continue;
    const std::string& complaint = traits(ChatRole::kSystem).complaint;
    return ChatFieldError(absl::StrCat("messages[", i, "].role"),
                          absl::StrCat("found ", NameOf(role), ", which the model's chat template has no place for",
                                       complaint.empty() ? "" : absl::StrCat(" (", complaint, ")")));
  }
  return absl::OkStatus();
}

ChatInputs ChatFormatter::Inputs(const Conversation& conversation) const {
  ChatInputs inputs;
  inputs.kwargs_json = conversation.kwargs_json;
  inputs.ending = conversation.ending;
  inputs.bos_token = conversation.bos_token;
  inputs.eos_token = conversation.eos_token;
  inputs.now = conversation.now;
  for (const ConversationMessage& message : conversation.messages) {
    const ChatRole role = RoleShown(message.role);
    ChatMessage shown;
    shown.role = std::string(NameOf(role));
    shown.name = message.name;
    if (traits(role).needs_parts || (traits(role).reads_parts && message.texts.size() > 1)) {
      shown.text_parts = message.texts;
    } else {
      shown.content = absl::StrJoin(message.texts, "");
    }
    inputs.messages.push_back(std::move(shown));
  }
  return inputs;
}

absl::StatusOr<RenderedChat> ChatFormatter::Render(const Conversation& conversation) const {
  SLUICE_RETURN_IF_ERROR(CheckRoles(conversation));
  ChatInputs inputs = Inputs(conversation);
  SLUICE_ASSIGN_OR_RETURN(RenderedChat rendered, template_.Render(inputs));
  if (rendered.unseen_messages.empty()) return rendered;
  for (const size_t i : rendered.unseen_messages) {
    ChatMessage& message = inputs.messages[i];
    if (message.content) message.content = std::string(kFirstPart);
    if (!message.text_parts.empty()) message.text_parts = {std::string(kFirstPart)};
  }
  const auto other_words = template_.Render(inputs);
  if (!other_words.ok()) return rendered;
  for (const size_t i : rendered.unseen_messages) {
    if (!IsUnseen(*other_words, i)) continue;
    return ChatFieldError(absl::StrCat("messages[", i, "].role"),
                          absl::StrCat("found ", NameOf(conversation.messages[i].role),
                                       ", a message that the model's chat template leaves out of the prompt here"));
  }
  return rendered;
}

}  // namespace sluice
