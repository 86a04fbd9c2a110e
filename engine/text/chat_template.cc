#include "engine/text/chat_template.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/text/jinja/json.h"
#include "engine/text/jinja/strings.h"
#include "engine/text/utf8.h"

namespace sluice {
namespace {

using jinja::Heap;
using jinja::Kind;
using jinja::Origin;
using jinja::Value;

// Appended to a final message that is to be continued: the text is cut there. The blank shows whether the template
// trims.
constexpr absl::string_view kContinueTag = "CONTINUE_FINAL_MESSAGE_TAG ";
constexpr absl::string_view kTrimmedTag = "CONTINUE_FINAL_MESSAGE_TAG";

absl::StatusOr<Value> UserText(absl::string_view field, absl::string_view text, Heap& heap) {
  if (const size_t bad = FindInvalidUtf8(text); bad != absl::string_view::npos) {
    return absl::InvalidArgumentError(absl::StrCat(field, " is not UTF-8 at byte ", bad));
  }
  return heap.NewString(text, Origin::kUser);
}

// `json` as a value, which must be of the kind `expected` (a list or a dict).
absl::StatusOr<Value> UserJson(absl::string_view field, absl::string_view json, Kind expected, Heap& heap) {
  auto value = jinja::FromJson(json, Origin::kUser, heap);
  if (!value.ok()) {
    return absl::Status(value.status().code(), absl::StrCat(field, ": ", value.status().message()));
  }
  if (!value->is(expected)) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, ": expected a JSON ", expected == Kind::kList ? "array" : "object"));
  }
  return value;
}

// Builds the dict that a template sees of one message.
class MessageBuilder {
 public:
  MessageBuilder(size_t index, Heap& heap) : prefix_(absl::StrCat("messages[", index, "].")), heap_(heap) {}

  absl::StatusOr<Value> Build(const ChatMessage& message) {
    SLUICE_ASSIGN_OR_RETURN(const Value dict, heap_.NewDict());
    dict_ = &dict.AsDict();
    SLUICE_RETURN_IF_ERROR(AddRole(message.role));
    if (!message.content_parts_json.empty()) {
      SLUICE_RETURN_IF_ERROR(AddJson("content", "content_parts", message.content_parts_json, Kind::kList));
    } else if (message.content) {
      SLUICE_RETURN_IF_ERROR(AddText("content", *message.content));
    }
    if (!message.name.empty()) SLUICE_RETURN_IF_ERROR(AddText("name", message.name));
    if (!message.reasoning_content.empty()) {
      SLUICE_RETURN_IF_ERROR(AddText("reasoning_content", message.reasoning_content));
    }
    if (!message.tool_calls_json.empty()) {
      SLUICE_RETURN_IF_ERROR(AddJson("tool_calls", "tool_calls", message.tool_calls_json, Kind::kList));
    }
    if (!message.tool_call_id.empty()) SLUICE_RETURN_IF_ERROR(AddText("tool_call_id", message.tool_call_id));
    if (!message.extra_json.empty()) SLUICE_RETURN_IF_ERROR(AddExtra(message.extra_json));
    return WithReasoning(dict);
  }

 private:
  absl::Status Add(absl::string_view key, const Value& value) {
    SLUICE_ASSIGN_OR_RETURN(const Value name, heap_.NewString(key, Origin::kTemplate));
    return heap_.SetItem(*dict_, name, value);
  }

  absl::Status AddText(absl::string_view key, absl::string_view text) {
    SLUICE_ASSIGN_OR_RETURN(const Value value, UserText(absl::StrCat(prefix_, key), text, heap_));
    return Add(key, value);
  }

  absl::Status AddJson(absl::string_view key, absl::string_view field, absl::string_view json, Kind expected) {
    SLUICE_ASSIGN_OR_RETURN(const Value value, UserJson(absl::StrCat(prefix_, field), json, expected, heap_));
    return Add(key, value);
  }

  absl::Status AddRole(absl::string_view role) {
    const bool plain = std::all_of(role.begin(), role.end(), [](char c) {
      return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-';
    });
    if (!plain) return AddText("role", role);
    SLUICE_ASSIGN_OR_RETURN(const Value value, heap_.NewString(role, Origin::kTemplate));
    return Add("role", value);
  }

  absl::Status AddExtra(absl::string_view json) {
    SLUICE_ASSIGN_OR_RETURN(const Value extra, UserJson(absl::StrCat(prefix_, "extra"), json, Kind::kDict, heap_));
    for (const auto& [key, value] : extra.AsDict().entries()) {
      if (value.is(Kind::kNone) || dict_->Find(key) != nullptr) continue;
      SLUICE_RETURN_IF_ERROR(heap_.SetItem(*dict_, key, value));
    }
    return absl::OkStatus();
  }

  // Models disagree on the name of the thoughts before an answer: the first that is there fills the two that templates
  // read.
  absl::StatusOr<Value> WithReasoning(const Value& message) {
    const Value* reasoning = nullptr;
    for (absl::string_view name : {"reasoning_content", "thinking", "reasoning"}) {
      if (reasoning == nullptr) reasoning = message.AsDict().Find(name);
    }
    if (reasoning == nullptr) return message;
    const Value thoughts = *reasoning;
    SLUICE_ASSIGN_OR_RETURN(const Value result, heap_.NewDict());
    dict_ = &result.AsDict();
    SLUICE_RETURN_IF_ERROR(Add("thinking", thoughts));
    for (const auto& [key, value] : message.AsDict().entries())
      SLUICE_RETURN_IF_ERROR(heap_.SetItem(*dict_, key, value));
    SLUICE_RETURN_IF_ERROR(Add("reasoning_content", thoughts));
    return result;
  }

  const std::string prefix_;
  Heap& heap_;
  jinja::Dict* dict_ = nullptr;
};

absl::Status NothingToContinue(absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("continue_final_message: ", why));
}

absl::StatusOr<Value> WithTag(const Value& text, Heap& heap) {
  jinja::TextBuilder out(heap.budget());
  out.Append(text.AsText());
  out.Append(kContinueTag, Origin::kUser);
  return heap.NewString(std::move(out));
}

// Tags the end of the final message's text and returns that text.
absl::StatusOr<Value> TagFinalMessage(jinja::Dict& message, Heap& heap) {
  const Value* content = message.Find("content");
  if (content == nullptr) return NothingToContinue("the final message has no content");
  SLUICE_ASSIGN_OR_RETURN(const Value content_key, heap.NewString("content", Origin::kTemplate));
  if (content->is(Kind::kString)) {
    const Value text = *content;
    SLUICE_ASSIGN_OR_RETURN(const Value tagged, WithTag(text, heap));
    SLUICE_RETURN_IF_ERROR(heap.SetItem(message, content_key, tagged));
    return text;
  }
  if (content->is(Kind::kList)) {
    const auto& parts = content->AsList().items;
    for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
      const Value* text = part->is(Kind::kDict) ? part->AsDict().Find("text") : nullptr;
      if (text == nullptr || !text->is(Kind::kString)) continue;
      const Value original = *text;
      SLUICE_ASSIGN_OR_RETURN(const Value text_key, heap.NewString("text", Origin::kTemplate));
      SLUICE_ASSIGN_OR_RETURN(const Value tagged, WithTag(original, heap));
      SLUICE_RETURN_IF_ERROR(heap.SetItem(part->AsDict(), text_key, tagged));
      return original;
    }
  }
  return NothingToContinue("the final message has no text");
}

// Cuts `rendered` at the tag; a template that trims its messages loses the whitespace before it, too.
absl::Status CutAtTag(const Value& final_text, jinja::Text* rendered, Heap& heap) {
  SLUICE_ASSIGN_OR_RETURN(const jinja::TextSlice stripped,
                          jinja::Strip(final_text.AsText(), std::nullopt, jinja::Side::kBoth, heap));
  const size_t tag = absl::string_view(rendered->bytes).rfind(kTrimmedTag);
  if (tag == absl::string_view::npos || !absl::StrContains(rendered->bytes, stripped.view())) {
    return NothingToContinue("the template does not show the final message as it is");
  }
  const bool trims = !absl::StartsWith(absl::string_view(rendered->bytes).substr(tag), kContinueTag);
  rendered->bytes.resize(tag);
  if (trims) {
    SLUICE_ASSIGN_OR_RETURN(const jinja::TextSlice kept,
                            jinja::Strip(*rendered, std::nullopt, jinja::Side::kRight, heap));
    rendered->bytes.resize(kept.end);
  }
  while (!rendered->user.empty() && rendered->user.back().begin >= rendered->bytes.size()) rendered->user.pop_back();
  if (!rendered->user.empty()) rendered->user.back().end = std::min(rendered->user.back().end, rendered->bytes.size());
  return absl::OkStatus();
}

using Variables = std::vector<std::pair<std::string, Value>>;

absl::Status AddVariables(const ChatInputs& inputs, const Value& messages, Variables* variables, Heap& heap) {
  auto add_token = [&](const char* name, absl::string_view token) -> absl::Status {
    if (token.empty()) return absl::OkStatus();
    SLUICE_ASSIGN_OR_RETURN(const Value value, heap.NewString(token, Origin::kTemplate));
    variables->emplace_back(name, value);
    return absl::OkStatus();
  };
  SLUICE_RETURN_IF_ERROR(add_token("bos_token", inputs.bos_token));
  SLUICE_RETURN_IF_ERROR(add_token("eos_token", inputs.eos_token));
  if (!inputs.kwargs_json.empty()) {
    SLUICE_ASSIGN_OR_RETURN(const Value kwargs,
                            UserJson("chat_template_kwargs", inputs.kwargs_json, Kind::kDict, heap));
    for (const auto& [key, value] : kwargs.AsDict().entries()) variables->emplace_back(key.AsView(), value);
  }
  for (const auto& [name, json] : {std::pair("tools", &inputs.tools_json), {"documents", &inputs.documents_json}}) {
    Value value = Value::None();
    if (!json->empty()) {
      SLUICE_ASSIGN_OR_RETURN(value, UserJson(name, *json, Kind::kList, heap));
    }
    variables->emplace_back(name, value);
  }
  // Last, so that no keyword argument hides them.
  variables->emplace_back("messages", messages);
  variables->emplace_back("add_generation_prompt", Value::Bool(inputs.ending == ChatEnding::kGenerationPrompt));
  return absl::OkStatus();
}

}  // namespace

std::vector<TextSegment> RenderedChat::Segments() const {
  std::vector<TextSegment> segments;
  const absl::string_view all = text;
  size_t begin = 0;
  for (const jinja::ByteRange& range : user_ranges) {
    if (range.begin > begin) segments.push_back({all.substr(begin, range.begin - begin), true});
    segments.push_back({all.substr(range.begin, range.end - range.begin), false});
    begin = range.end;
  }
  if (begin < all.size()) segments.push_back({all.substr(begin), true});
  return segments;
}

ChatTemplate::ChatTemplate(jinja::Template parsed, absl::string_view source, const jinja::Limits& limits)
    : template_(std::move(parsed)), limits_(limits), names_content_(absl::StrContains(source, "content")) {}

absl::StatusOr<ChatTemplate> ChatTemplate::Parse(absl::string_view source, const jinja::Limits& limits) {
  SLUICE_ASSIGN_OR_RETURN(jinja::Template parsed, jinja::Template::Parse(source, limits));
  return ChatTemplate(std::move(parsed), source, limits);
}

absl::StatusOr<RenderedChat> ChatTemplate::Render(const ChatInputs& inputs) const {
  jinja::Budget budget(limits_);
  Heap heap(budget);
  SLUICE_ASSIGN_OR_RETURN(const Value messages, heap.NewList({}));
  for (size_t i = 0; i < inputs.messages.size(); ++i) {
    SLUICE_ASSIGN_OR_RETURN(const Value message, MessageBuilder(i, heap).Build(inputs.messages[i]));
    SLUICE_RETURN_IF_ERROR(heap.AppendItem(messages.AsList(), message));
  }
  const bool to_be_continued = inputs.ending == ChatEnding::kContinueFinalMessage;
  Value final_text;
  if (to_be_continued) {
    if (inputs.messages.empty()) return NothingToContinue("there is no message");
    if (!names_content_) return NothingToContinue("the template does not show the content of messages");
    SLUICE_ASSIGN_OR_RETURN(final_text, TagFinalMessage(messages.AsList().items.back().AsDict(), heap));
  }
  Variables variables;
  SLUICE_RETURN_IF_ERROR(AddVariables(inputs, messages, &variables, heap));
  SLUICE_ASSIGN_OR_RETURN(jinja::Text rendered, template_.Render(variables, inputs.now, heap));
  if (to_be_continued) SLUICE_RETURN_IF_ERROR(CutAtTag(final_text, &rendered, heap));
  return RenderedChat{std::move(rendered.bytes), std::move(rendered.user)};
}

}  // namespace sluice
