// From what a request says to the tokens of its prompt.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "server/calls/served_model.h"
#include "sluice/v1/chat.pb.h"
#include "sluice/v1/generation.pb.h"

namespace sluice {

// Of a text to be tokenised where no context bounds it: work, and some fifty bytes of memory per token.
inline constexpr int64_t kMaxTextBytes = 8 << 20;
// `what`: of what the bytes are, ending in a space, or nothing.
absl::Status CheckTextSize(absl::string_view field, absl::string_view what, int64_t num_bytes);

// FAILED_PRECONDITION: the model has no tokenizer. INVALID_ARGUMENT: not UTF-8, or so long that it cannot fit into the
// context (told without tokenising it), or it needs a token that the model does not have; names the field.
absl::StatusOr<std::vector<int32_t>> EncodeText(absl::string_view field, const std::string& text,
                                                bool add_special_tokens, bool parse_special, const ServedModel& model);

struct ChatPromptOptions {
  bool add_generation_prompt = true;
  bool continue_final_message = false;
};

struct ChatPrompt {
  std::string text;
  std::vector<int32_t> tokens;
};

// Renders a conversation by the model's template. Control tokens are recognised in what the template itself writes,
// never in what a message says. FAILED_PRECONDITION: the model has no tokenizer or no chat template, its template does
// not parse, or it fails on this conversation. INVALID_ARGUMENT: a message is malformed or needs a token that the model
// does not have, the template has no place for it, or it refuses the conversation. RESOURCE_EXHAUSTED: rendering takes
// more than jinja::Limits of steps, memory or output. Both parts of the work are bounded by counts, not by a clock, so
// that equal requests end alike: rendering by those limits, tokenising by the length of what is rendered, which must
// be able to fit into the context (and by the pattern's limit on backtracking, engine/text/regex.h).
absl::StatusOr<ChatPrompt> EncodeChat(const google::protobuf::RepeatedPtrField<v1::ChatMessage>& messages,
                                      const std::string& template_kwargs_json, const ChatPromptOptions& options,
                                      const ServedModel& model);

// The field that holds the prompt, for errors: "prompt", "prompt_ids.ids" or "messages".
absl::string_view PromptField(const v1::CompleteRequest& request);
absl::string_view PromptField(const v1::ChatRequest& request);

// The prompt of a generation request, of either kind.
absl::StatusOr<std::vector<int32_t>> PromptTokens(const v1::CompleteRequest& request, const ServedModel& model);
absl::StatusOr<std::vector<int32_t>> PromptTokens(const v1::ChatRequest& request, const ServedModel& model);

}  // namespace sluice
