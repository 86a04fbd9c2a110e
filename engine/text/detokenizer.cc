#include "engine/text/detokenizer.h"

namespace sluice {

void Detokenizer::Prime(absl::Span<const int32_t> prompt) {
  // An unfinished character is at most three bytes long, so the last tokens with three bytes together decide the state.
  constexpr size_t kUnfinishedBytes = 3;
  size_t first = prompt.size();
  for (size_t bytes = 0; first > 0 && bytes < kUnfinishedBytes;) {
    --first;
    if (skip_special_ && tokenizer_->IsSpecial(prompt[first])) continue;
    bytes += tokenizer_->TokenBytes(prompt[first]).size();
  }
  for (const int32_t id : prompt.subspan(first)) Push(id);
}

std::string Detokenizer::Push(int32_t id) {
  std::string text;
  if (skip_special_ && tokenizer_->IsSpecial(id)) return text;
  absl::string_view bytes = tokenizer_->TokenBytes(id);
  if (bytes.empty()) return text;
  if (at_text_start_ && bytes[0] == ' ') bytes.remove_prefix(1);
  at_text_start_ = false;
  assembler_.Push(bytes, &text);
  return text;
}

std::string Detokenizer::Flush() {
  std::string text;
  assembler_.Flush(&text);
  return text;
}

}  // namespace sluice
