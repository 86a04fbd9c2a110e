// Renders a conversation into the prompt of a model, with the Jinja template that the model brings.
//
// The result equals that of Hugging Face transformers 5 (`apply_chat_template(tokenize=False)`): message keys that are
// null are absent, reasoning_content, thinking and reasoning stand for each other, `tools` and `documents` are always
// defined (none when there are none), and so on. It is also told apart which bytes are the template's own and which
// came from the conversation, so that a control token written by a user stays plain text.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/civil_time.h"
#include "engine/text/jinja/budget.h"
#include "engine/text/jinja/template.h"
#include "engine/text/tokenizer.h"

namespace sluice {

// All strings are UTF-8; those named *_json hold JSON, and empty means absent. Key order is kept: it decides how a
// template prints tools.
struct ChatMessage {
  // Part of the template's own text if it is letters, digits, '_' and '-' only (templates build control tokens from it,
  // <|user|> say), so a server should only take known roles.
  std::string role = {};
  std::optional<std::string> content = {};
  std::vector<std::string> text_parts = {};  // instead of `content`: a list of {"type": "text", "text": "..."}
  std::string content_parts_json = {};       // instead of both: such a list with whatever parts
  std::string name = {};
  std::string tool_calls_json = {};  // an array; most templates want "arguments" to be an object, not a string
  std::string tool_call_id = {};
  std::string reasoning_content = {};
  std::string extra_json = {};  // an object with further keys; those above win
};

// How the rendered conversation ends.
enum class ChatEnding {
  kGenerationPrompt,      // with the beginning of the answer (add_generation_prompt)
  kComplete,              // after the last message
  kContinueFinalMessage,  // inside of the last message, which the model goes on with
};

struct ChatInputs {
  std::vector<ChatMessage> messages;
  std::string tools_json;      // an array
  std::string documents_json;  // an array
  // An object of further variables: {"enable_thinking": false}. Its tools and documents are those two, if they are not
  // set here already.
  std::string kwargs_json;
  ChatEnding ending = ChatEnding::kGenerationPrompt;
  std::string bos_token;  // empty if the model has none: then undefined
  std::string eos_token;
  absl::CivilSecond now;  // what strftime_now shows
};

struct RenderedChat {
  std::string text;
  std::vector<jinja::ByteRange> user_ranges;  // what came from the conversation: ascending, not touching, not empty
  // Messages whose content holds more than whitespace, of which nothing is in `text`.
  std::vector<size_t> unseen_messages;
  // The list of a message's text_parts stands there as Python or JSON would print it: the template wants one text.
  bool prints_part_lists = false;

  // `text` in pieces for Tokenizer::Encode; added tokens are parsed outside of `user_ranges` only. They point into
  // `text`.
  std::vector<TextSegment> Segments() const;
};

// Immutable; all methods are thread-safe.
class ChatTemplate {
 public:
  // INVALID_ARGUMENT "chat template, line L, column C: ..." for a syntax error; RESOURCE_EXHAUSTED for a template that
  // is too long. The limits hold for each render, too, unless it is given smaller ones.
  static absl::StatusOr<ChatTemplate> Parse(absl::string_view source, const jinja::Limits& limits = {});

  // INVALID_ARGUMENT: a field (FieldOf) that is not what it should be, or the template's own complaint (the text it
  // gives to raise_exception). FAILED_PRECONDITION: an operation of the template failed (with its line).
  // RESOURCE_EXHAUSTED names the limit that was reached.
  absl::StatusOr<RenderedChat> Render(const ChatInputs& inputs) const { return Render(inputs, limits_); }
  absl::StatusOr<RenderedChat> Render(const ChatInputs& inputs, const jinja::Limits& limits) const;

  // Filters and tests that there are none of, each with its line and column: a render that reaches one fails.
  const std::vector<std::string>& warnings() const { return template_.warnings(); }

 private:
  ChatTemplate(jinja::Template parsed, absl::string_view source, const jinja::Limits& limits);

  jinja::Template template_;
  jinja::Limits limits_;
  bool names_content_;  // the source mentions `content`
};

// INVALID_ARGUMENT "field: what", and the field of ChatInputs that such an error blames; empty for other errors.
// Messages are named as in requests: messages[0].content.
absl::Status ChatFieldError(absl::string_view field, absl::string_view what);
std::string FieldOf(const absl::Status& status);

}  // namespace sluice
