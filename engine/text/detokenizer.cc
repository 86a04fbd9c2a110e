#include "engine/text/detokenizer.h"

#include "absl/strings/str_cat.h"

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
  if (first > 0) {
    first_token_ = false;
    strip_left_ = 0;
  }
}

std::string Detokenizer::Push(int32_t id) {
  std::string text;
  if (skip_special_ && tokenizer_->IsSpecial(id)) return text;
  if (tokenizer_->TokenText(id).empty()) return text;  // no such token
  absl::string_view bytes = tokenizer_->TokenBytes(id);
  std::string changed;
  if (first_token_ && tokenizer_->decoder().unmark_first) {
    bytes = changed = tokenizer_->FirstTokenBytes(id);
  } else if (!first_token_ && tokenizer_->decoder().space_between_tokens) {
    bytes = changed = absl::StrCat(" ", bytes);
  }
  first_token_ = false;
  while (strip_left_ > 0 && !bytes.empty()) {
    if (bytes[0] != ' ') {
      strip_left_ = 0;
      break;
    }
    bytes.remove_prefix(1);
    --strip_left_;
  }
  assembler_.Push(bytes, &text);
  return text;
}

std::string Detokenizer::Flush() {
  std::string text;
  assembler_.Flush(&text);
  return text;
}

}  // namespace sluice
