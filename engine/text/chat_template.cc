#include "engine/text/chat_template.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/cord.h"
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

constexpr absl::string_view kFieldPayload = "sluice/chat_field";
// As requests name it.
constexpr absl::string_view kKwargsField = "chat_template_kwargs_json";

// Origins of text, to be told apart in what a template makes of it. Nothing that a user or a template writes can be
// taken for the tag: it is found by its origin, not by its text.
constexpr auto kTagOrigin = static_cast<Origin>(2);
constexpr auto kPartOrigin = static_cast<Origin>(3);  // of the keys and types in a list of parts
constexpr uint32_t kFirstMessage = 4;

Origin OriginOfMessage(size_t index) { return static_cast<Origin>(kFirstMessage + static_cast<uint32_t>(index)); }

// Appended to a final message that is to be continued: the text is cut there. The blank shows whether the template
// trims.
constexpr absl::string_view kContinueTag = "CONTINUE_FINAL_MESSAGE_TAG ";
constexpr absl::string_view kTrimmedTag = "CONTINUE_FINAL_MESSAGE_TAG";

absl::StatusOr<Value> UserText(absl::string_view field, absl::string_view text, Origin origin, Heap& heap) {
  if (const size_t bad = FindInvalidUtf8(text); bad != absl::string_view::npos) {
    return ChatFieldError(field, absl::StrCat("not UTF-8 at byte ", bad));
  }
  return heap.NewString(text, origin);
}

// `json` as a value, which must be of the kind `expected` (a list or a dict).
absl::StatusOr<Value> UserJson(absl::string_view field, absl::string_view json, Kind expected, Origin origin,
                               Heap& heap) {
  auto value = jinja::FromJson(json, origin, heap);
  if (absl::IsInvalidArgument(value.status())) return ChatFieldError(field, value.status().message());
  if (!value.ok()) return value.status();
  if (!value->is(expected)) {
    return ChatFieldError(field, absl::StrCat("expected a JSON ", expected == Kind::kList ? "array" : "object"));
  }
  return value;
}

// Builds the dict that a template sees of one message.
class MessageBuilder {
 public:
  MessageBuilder(size_t index, Heap& heap)
      : prefix_(absl::StrCat("messages[", index, "].")), origin_(OriginOfMessage(index)), heap_(heap) {}

  absl::StatusOr<Value> Build(const ChatMessage& message) {
    SLUICE_ASSIGN_OR_RETURN(const Value dict, heap_.NewDict());
    dict_ = &dict.AsDict();
    SLUICE_RETURN_IF_ERROR(AddRole(message.role));
    if (!message.content_parts_json.empty()) {
      SLUICE_RETURN_IF_ERROR(AddJson("content", "content_parts", message.content_parts_json, Kind::kList, origin_));
    } else if (!message.text_parts.empty()) {
      SLUICE_RETURN_IF_ERROR(AddParts(message.text_parts));
    } else if (message.content) {
      SLUICE_RETURN_IF_ERROR(AddText("content", *message.content, origin_));
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
    SLUICE_ASSIGN_OR_RETURN(const Value finished, WithReasoning(dict));
    finished.AsDict().Freeze();
    return finished;
  }

 private:
  absl::Status Add(absl::string_view key, const Value& value) {
    SLUICE_ASSIGN_OR_RETURN(const Value name, heap_.NewString(key, Origin::kTemplate));
    return heap_.SetItem(*dict_, name, value);
  }

  absl::Status AddText(absl::string_view key, absl::string_view text, Origin origin = Origin::kUser) {
    SLUICE_ASSIGN_OR_RETURN(const Value value, UserText(absl::StrCat(prefix_, key), text, origin, heap_));
    return Add(key, value);
  }

  absl::Status AddJson(absl::string_view key, absl::string_view field, absl::string_view json, Kind expected,
                       Origin origin = Origin::kUser) {
    SLUICE_ASSIGN_OR_RETURN(const Value value, UserJson(absl::StrCat(prefix_, field), json, expected, origin, heap_));
    return Add(key, value);
  }

  absl::Status AddParts(const std::vector<std::string>& texts) {
    SLUICE_ASSIGN_OR_RETURN(const Value list, heap_.NewList({}));
    SLUICE_ASSIGN_OR_RETURN(const Value type_key, heap_.NewString("type", kPartOrigin));
    SLUICE_ASSIGN_OR_RETURN(const Value text_key, heap_.NewString("text", kPartOrigin));
    for (size_t i = 0; i < texts.size(); ++i) {
      SLUICE_ASSIGN_OR_RETURN(const Value part, heap_.NewDict());
      SLUICE_ASSIGN_OR_RETURN(const Value text,
                              UserText(absl::StrCat(prefix_, "content[", i, "].text"), texts[i], origin_, heap_));
      SLUICE_RETURN_IF_ERROR(heap_.SetItem(part.AsDict(), type_key, text_key));
      SLUICE_RETURN_IF_ERROR(heap_.SetItem(part.AsDict(), text_key, text));
      part.AsDict().Freeze();
      SLUICE_RETURN_IF_ERROR(heap_.AppendItem(list.AsList(), part));
    }
    list.AsList().frozen = true;
    return Add("content", list);
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
    SLUICE_ASSIGN_OR_RETURN(const Value extra,
                            UserJson(absl::StrCat(prefix_, "extra"), json, Kind::kDict, Origin::kUser, heap_));
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
  const Origin origin_;
  Heap& heap_;
  jinja::Dict* dict_ = nullptr;
};

absl::Status NothingToContinue(absl::string_view why) { return ChatFieldError("continue_final_message", why); }

absl::StatusOr<Value> WithTag(const Value& text, Heap& heap) {
  jinja::TextBuilder out(heap.budget());
  out.Append(text.AsText());
  out.Append(kContinueTag, kTagOrigin);
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

// Where the tag stands in `rendered`, which must show it once and whole.
absl::StatusOr<jinja::ByteRange> FindTag(const Value& final_text, const jinja::Text& rendered, Heap& heap) {
  SLUICE_ASSIGN_OR_RETURN(const jinja::TextSlice stripped,
                          jinja::Strip(final_text.AsText(), std::nullopt, jinja::Side::kBoth, heap));
  std::vector<jinja::ByteRange> tags;
  for (const jinja::ByteRange& range : rendered.user) {
    if (range.origin == kTagOrigin) tags.push_back(range);
  }
  if (tags.size() > 1) return NothingToContinue("the template shows the final message more than once");
  const absl::string_view text = rendered.bytes;
  const absl::string_view tag = tags.empty() ? "" : text.substr(tags[0].begin, tags[0].end - tags[0].begin);
  if ((tag != kContinueTag && tag != kTrimmedTag) ||
      !absl::StrContains(text.substr(0, tags[0].begin), stripped.view())) {
    return NothingToContinue("the template does not show the final message as it is");
  }
  return tags[0];
}

// Cuts `rendered` at the tag; a template that trims its messages loses the whitespace before it, too.
absl::Status CutAtTag(const Value& final_text, jinja::Text* rendered, Heap& heap) {
  SLUICE_ASSIGN_OR_RETURN(const jinja::ByteRange range, FindTag(final_text, *rendered, heap));
  const size_t tag = range.begin;
  const bool trims = range.end - range.begin < kContinueTag.size();
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

// tools or documents: from the input of that name, or else from the keyword arguments. Always defined.
absl::StatusOr<Value> ListVariable(absl::string_view name, const std::string& json, const Value* keyword, bool is_known,
                                   Heap& heap) {
  if (keyword == nullptr || keyword->is(Kind::kNone)) {
    if (json.empty()) return Value::None();
    return UserJson(name, json, Kind::kList, Origin::kUser, heap);
  }
  const std::string field = absl::StrCat(kKwargsField, ".", name);
  if (!json.empty()) return ChatFieldError(field, absl::StrCat("found it beside ", name, ", expected one of them"));
  if (!keyword->is(Kind::kList)) {
    return ChatFieldError(field, absl::StrCat("found a ", jinja::TypeName(*keyword), ", expected an array"));
  }
  for (const Value& item : keyword->AsList().items) {
    if (!item.is(Kind::kDict)) {
      return ChatFieldError(field, absl::StrCat("found a ", jinja::TypeName(item), " in it, expected objects"));
    }
  }
  if (!is_known && !keyword->AsList().items.empty()) {
    return ChatFieldError(field, absl::StrCat("the model's chat template does not use ", name));
  }
  return *keyword;
}

absl::Status AddVariables(const ChatInputs& inputs, const Value& messages, const jinja::Template& parsed,
                          Variables* variables, Heap& heap) {
  auto add_token = [&](const char* name, absl::string_view token) -> absl::Status {
    if (token.empty()) return absl::OkStatus();
    SLUICE_ASSIGN_OR_RETURN(const Value value, heap.NewString(token, Origin::kTemplate));
    variables->emplace_back(name, value);
    return absl::OkStatus();
  };
  SLUICE_RETURN_IF_ERROR(add_token("bos_token", inputs.bos_token));
  SLUICE_RETURN_IF_ERROR(add_token("eos_token", inputs.eos_token));
  SLUICE_ASSIGN_OR_RETURN(Value kwargs, heap.NewDict());
  if (!inputs.kwargs_json.empty()) {
    SLUICE_ASSIGN_OR_RETURN(kwargs,
                            UserJson(kKwargsField, inputs.kwargs_json, Kind::kDict, Origin::kUser, heap));
  }
  for (absl::string_view taken : {"messages", "add_generation_prompt", "continue_final_message"}) {
    if (kwargs.AsDict().Find(taken) == nullptr) continue;
    return ChatFieldError(absl::StrCat(kKwargsField, ".", taken),
                          "found a variable that the request itself sets by another field");
  }
  for (const auto& [key, value] : kwargs.AsDict().entries()) variables->emplace_back(key.AsView(), value);
  for (const auto& [name, json] : {std::pair("tools", &inputs.tools_json), {"documents", &inputs.documents_json}}) {
    SLUICE_ASSIGN_OR_RETURN(const Value value,
                            ListVariable(name, *json, kwargs.AsDict().Find(name), parsed.Names(name), heap));
    variables->emplace_back(name, value);
  }
  variables->emplace_back("messages", messages);
  variables->emplace_back("add_generation_prompt", Value::Bool(inputs.ending == ChatEnding::kGenerationPrompt));
  return absl::OkStatus();
}

// Which messages left nothing, and what came from users, without the difference between them.
RenderedChat Finished(jinja::Text rendered, const std::vector<bool>& have_text) {
  RenderedChat chat;
  std::vector<bool> unseen = have_text;
  for (const jinja::ByteRange& range : rendered.user) {
    const auto origin = static_cast<uint32_t>(range.origin);
    if (origin >= kFirstMessage) unseen[origin - kFirstMessage] = false;
    chat.prints_part_lists = chat.prints_part_lists || range.origin == kPartOrigin;
    if (!chat.user_ranges.empty() && chat.user_ranges.back().end == range.begin) {
      chat.user_ranges.back().end = range.end;
    } else {
      chat.user_ranges.push_back({range.begin, range.end});
    }
  }
  for (size_t i = 0; i < unseen.size(); ++i) {
    if (unseen[i]) chat.unseen_messages.push_back(i);
  }
  chat.text = std::move(rendered.bytes);
  return chat;
}

bool HasText(const ChatMessage& message) {
  auto shows = [](absl::string_view text) { return !absl::StripAsciiWhitespace(text).empty(); };
  return std::any_of(message.text_parts.begin(), message.text_parts.end(), shows) ||
         (message.content.has_value() && shows(*message.content));
}

}  // namespace

absl::Status ChatFieldError(absl::string_view field, absl::string_view what) {
  absl::Status status = absl::InvalidArgumentError(absl::StrCat(field, ": ", what));
  status.SetPayload(kFieldPayload, absl::Cord(field));
  return status;
}

std::string FieldOf(const absl::Status& status) {
  const auto field = status.GetPayload(kFieldPayload);
  return field.has_value() ? std::string(*field) : "";
}

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

absl::StatusOr<RenderedChat> ChatTemplate::Render(const ChatInputs& inputs, const jinja::Limits& limits) const {
  jinja::Budget budget(limits);
  Heap heap(budget);
  SLUICE_ASSIGN_OR_RETURN(const Value messages, heap.NewList({}));
  std::vector<bool> have_text;
  for (size_t i = 0; i < inputs.messages.size(); ++i) {
    SLUICE_ASSIGN_OR_RETURN(const Value message, MessageBuilder(i, heap).Build(inputs.messages[i]));
    SLUICE_RETURN_IF_ERROR(heap.AppendItem(messages.AsList(), message));
    have_text.push_back(HasText(inputs.messages[i]));
  }
  messages.AsList().frozen = true;
  const bool to_be_continued = inputs.ending == ChatEnding::kContinueFinalMessage;
  Value final_text;
  if (to_be_continued) {
    if (inputs.messages.empty()) return NothingToContinue("there is no message");
    if (!names_content_) return NothingToContinue("the template does not show the content of messages");
    SLUICE_ASSIGN_OR_RETURN(final_text, TagFinalMessage(messages.AsList().items.back().AsDict(), heap));
  }
  Variables variables;
  SLUICE_RETURN_IF_ERROR(AddVariables(inputs, messages, template_, &variables, heap));
  SLUICE_ASSIGN_OR_RETURN(jinja::Text rendered, template_.Render(variables, inputs.now, heap));
  if (to_be_continued) SLUICE_RETURN_IF_ERROR(CutAtTag(final_text, &rendered, heap));
  return Finished(std::move(rendered), have_text);
}

}  // namespace sluice
