#include "server/calls/prompt.h"

#include <optional>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "engine/base/quote.h"
#include "engine/base/status_macros.h"
#include "engine/text/chat_formatter.h"
#include "server/calls/convert.h"
#include "server/calls/status.h"

namespace sluice {
namespace {

// No tokenizer makes fewer tokens than there are bytes over the longest token, unless it may leave text out.
absl::Status CheckLength(absl::string_view field, int64_t num_bytes, const ServedModel& model) {
  const int64_t max_model_len = model.host().engine.max_model_len;
  const int64_t max_token_bytes = model.max_token_bytes();
  if (max_token_bytes == 0) return CheckTextSize(field, "", num_bytes);
  if (num_bytes / max_token_bytes < max_model_len) return absl::OkStatus();
  return InvalidField(
      field,
      absl::StrCat("found ", num_bytes, " bytes, which are more than the ", max_model_len, " tokens of the context"),
      kReasonContextLengthExceeded, {{"max_model_len", absl::StrCat(max_model_len)}});
}

// Tokenizers may have added tokens that the model has no embedding of; text that needs one cannot be served. `field_of`
// says which field holds a text.
absl::Status CheckVocabulary(const std::vector<int32_t>& tokens, const ServedModel& model,
                             absl::FunctionRef<std::string(absl::string_view)> field_of) {
  const int32_t vocab_size = model.host().engine.vocab_size;
  for (const int32_t token : tokens) {
    if (token < vocab_size) continue;
    const absl::string_view text = model.host().tokenizer->TokenText(token);
    return InvalidField(field_of(text),
                        absl::StrCat("found the text ", Quote(text), ", which is token ", token,
                                     "; expected text of the model's ", vocab_size, " tokens"),
                        kReasonInvalidToken);
  }
  return absl::OkStatus();
}

// The part of a message that holds `text`; "messages" if it is the template's.
std::string FieldWithText(const google::protobuf::RepeatedPtrField<v1::ChatMessage>& messages, absl::string_view text) {
  for (int i = 0; i < messages.size(); ++i) {
    for (int part = 0; part < messages[i].content_size(); ++part) {
      if (absl::StrContains(messages[i].content(part).text(), text)) {
        return absl::StrCat("messages[", i, "].content[", part, "]");
      }
    }
  }
  return "messages";
}

// Nullopt for a value that is no role.
std::optional<ChatRole> RoleOf(v1::Role role) {
  switch (role) {
    case v1::ROLE_SYSTEM:
      return ChatRole::kSystem;
    case v1::ROLE_DEVELOPER:
      return ChatRole::kDeveloper;
    case v1::ROLE_USER:
      return ChatRole::kUser;
    case v1::ROLE_ASSISTANT:
      return ChatRole::kAssistant;
    case v1::ROLE_TOOL:
      return ChatRole::kTool;
    default:
      return std::nullopt;
  }
}

absl::StatusOr<ConversationMessage> ConvertMessage(const std::string& field, const v1::ChatMessage& message) {
  if (message.tool_calls_size() > 0) return UnimplementedField(field + ".tool_calls");
  if (!message.tool_call_id().empty()) return UnimplementedField(field + ".tool_call_id");
  const std::optional<ChatRole> role = RoleOf(message.role());
  if (!role.has_value()) {
    return InvalidField(field + ".role",
                        absl::StrCat("found ", int(message.role()), ", expected one of the named roles"));
  }
  if (message.content_size() == 0) return InvalidField(field + ".content", "found nothing, expected at least one part");
  ConversationMessage converted;
  converted.role = *role;
  converted.name = message.name();
  for (int i = 0; i < message.content_size(); ++i) {
    if (!message.content(i).has_text()) {
      return InvalidField(absl::StrCat(field, ".content[", i, "]"), "found a part without text, expected text");
    }
    converted.texts.push_back(message.content(i).text());
  }
  return converted;
}

// What a render's error means to a client: a field of the request, the template's own words about the conversation, or
// a template that cannot do it, or not at a bounded cost.
absl::Status RenderError(const absl::Status& error) {
  if (absl::IsResourceExhausted(error)) {
    return CallError(absl::StatusCode::kResourceExhausted, kReasonTemplateTooCostly,
                     absl::StrCat("this conversation is too costly to render: ", error.message(), "; send less"));
  }
  if (!absl::IsInvalidArgument(error)) {
    return CallError(absl::StatusCode::kFailedPrecondition, kReasonChatTemplateFailed,
                     absl::StrCat("the model's chat template fails on this conversation: ", error.message()));
  }
  const std::string field = FieldOf(error);
  if (field.empty()) return InvalidField("messages", error.message());
  absl::string_view description = error.message();
  absl::ConsumePrefix(&description, absl::StrCat(field, ": "));
  return InvalidField(field, description);
}

std::string TokenTextOrEmpty(const Tokenizer& tokenizer, std::optional<int32_t> id) {
  return id.has_value() ? std::string(tokenizer.TokenText(*id)) : "";
}

ChatEnding EndingOf(const ChatPromptOptions& options) {
  if (options.continue_final_message) return ChatEnding::kContinueFinalMessage;
  return options.add_generation_prompt ? ChatEnding::kGenerationPrompt : ChatEnding::kComplete;
}

}  // namespace

absl::Status CheckTextSize(absl::string_view field, absl::string_view what, int64_t num_bytes) {
  if (num_bytes <= kMaxTextBytes) return absl::OkStatus();
  return InvalidField(field, absl::StrCat("found ", what, num_bytes, " bytes, expected at most ", kMaxTextBytes));
}

absl::StatusOr<std::vector<int32_t>> EncodeText(absl::string_view field, const std::string& text,
                                                bool add_special_tokens, bool parse_special, const ServedModel& model) {
  if (model.host().tokenizer == nullptr) return NoTokenizerError();
  SLUICE_RETURN_IF_ERROR(CheckLength(field, int64_t(text.size()), model));
  auto tokens =
      model.host().tokenizer->Encode(text, {.add_special = add_special_tokens, .parse_special = parse_special});
  if (!tokens.ok()) return InvalidField(field, tokens.status().message());
  SLUICE_RETURN_IF_ERROR(CheckVocabulary(*tokens, model, [field](absl::string_view) { return std::string(field); }));
  return tokens;
}

absl::StatusOr<ChatPrompt> EncodeChat(const google::protobuf::RepeatedPtrField<v1::ChatMessage>& messages,
                                      const std::string& template_kwargs_json, const ChatPromptOptions& options,
                                      const ServedModel& model) {
  if (model.host().tokenizer == nullptr) return NoTokenizerError();
  if (model.host().chat_template == nullptr) {
    const std::string& error = model.host().chat_template_error;
    if (error.empty()) {
      return CallError(absl::StatusCode::kFailedPrecondition, kReasonNoChatTemplate,
                       "the model has no chat template; use Complete");
    }
    return CallError(absl::StatusCode::kFailedPrecondition, kReasonChatTemplateBroken,
                     absl::StrCat("the model's chat template cannot be used: ", error));
  }
  if (messages.empty()) return InvalidField("messages", "found none, expected at least one");
  const Tokenizer& tokenizer = *model.host().tokenizer;
  Conversation conversation;
  for (int i = 0; i < messages.size(); ++i) {
    SLUICE_ASSIGN_OR_RETURN(ConversationMessage message,
                            ConvertMessage(absl::StrCat("messages[", i, "]"), messages[i]));
    conversation.messages.push_back(std::move(message));
  }
  if (options.continue_final_message && conversation.messages.back().role != ChatRole::kAssistant) {
    return InvalidField("continue_final_message",
                        absl::StrCat("found a last message of role ", NameOf(conversation.messages.back().role),
                                     ", expected assistant"));
  }
  if (options.continue_final_message && options.add_generation_prompt) {
    return InvalidField("add_generation_prompt", "found true beside continue_final_message, expected only one of them");
  }
  conversation.kwargs_json = template_kwargs_json;
  conversation.ending = EndingOf(options);
  conversation.bos_token = TokenTextOrEmpty(tokenizer, tokenizer.bos_id());
  conversation.eos_token = TokenTextOrEmpty(tokenizer, tokenizer.eos_id());
  conversation.now = absl::ToCivilSecond(absl::Now(), absl::LocalTimeZone());

  auto rendered = model.host().chat_template->Render(conversation);
  if (!rendered.ok()) return RenderError(rendered.status());
  SLUICE_RETURN_IF_ERROR(CheckLength("messages", int64_t(rendered->text.size()), model));
  auto tokens = tokenizer.Encode(rendered->Segments(), {.add_special = false});
  if (!tokens.ok()) return InvalidField("messages", tokens.status().message());
  SLUICE_RETURN_IF_ERROR(
      CheckVocabulary(*tokens, model, [&messages](absl::string_view text) { return FieldWithText(messages, text); }));
  return ChatPrompt{std::move(rendered->text), *std::move(tokens)};
}

absl::string_view PromptField(const v1::CompleteRequest& request) {
  return request.has_prompt_ids() ? "prompt_ids.ids" : "prompt";
}
absl::string_view PromptField(const v1::ChatRequest&) { return "messages"; }

absl::StatusOr<std::vector<int32_t>> PromptTokens(const v1::CompleteRequest& request, const ServedModel& model) {
  switch (request.input_case()) {
    case v1::CompleteRequest::kPrompt:
      return EncodeText("prompt", request.prompt(), !request.has_add_special_tokens() || request.add_special_tokens(),
                        !request.has_parse_special() || request.parse_special(), model);
    case v1::CompleteRequest::kPromptIds:
      return ConvertTokenIds(PromptField(request), request.prompt_ids().ids(), model.host().engine.vocab_size);
    case v1::CompleteRequest::INPUT_NOT_SET:
      break;
  }
  return InvalidField("prompt", "found neither prompt nor prompt_ids, expected one of them");
}

absl::StatusOr<std::vector<int32_t>> PromptTokens(const v1::ChatRequest& request, const ServedModel& model) {
  if (request.tools_size() > 0) return UnimplementedField("tools");
  if (!request.tool_choice().empty()) return UnimplementedField("tool_choice");
  ChatPromptOptions options;
  options.continue_final_message = request.continue_final_message();
  options.add_generation_prompt = !request.continue_final_message();
  SLUICE_ASSIGN_OR_RETURN(ChatPrompt prompt,
                          EncodeChat(request.messages(), request.chat_template_kwargs_json(), options, model));
  return std::move(prompt.tokens);
}

}  // namespace sluice
