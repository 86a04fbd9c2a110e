#include "engine/text/detokenizer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace sluice {

void Detokenizer::Prime(absl::Span<const int32_t> prompt) {
  // What the text to come depends on: the run of byte tokens at the end, and before it an unfinished character, which
  // is at most three bytes long.
  constexpr size_t kUnfinishedBytes = 3;
  size_t first = prompt.size();
  bool in_run = true;
  for (size_t bytes = 0; first > 0 && (in_run || bytes < kUnfinishedBytes);) {
    --first;
    if (skip_special_ && tokenizer_->IsSpecial(prompt[first])) continue;
    if (tokenizer_->TokenText(prompt[first]).empty()) continue;
    in_run = in_run && tokenizer_->IsByteToken(prompt[first]);
    if (!in_run) bytes += tokenizer_->TokenBytes(prompt[first]).size();
  }
  for (const int32_t id : prompt.subspan(first)) Push(id);
  // A run that is UTF-8 so far was shown but for the character that it leaves unfinished, any other as it is.
  std::string replaced, shown;
  const size_t valid = std::min(FindInvalidUtf8(run_), run_.size());
  Utf8Assembler().Push(absl::string_view(run_).substr(valid), &replaced);
  run_begin_ = replaced.empty() ? valid : run_.size();
  if (run_begin_ > 0) AppendPiece(replaced.empty() ? run_.substr(0, valid) : replaced, &shown);
  if (first > 0) first_ = false;
  text_.Continue(/*begun=*/first > 0);
}

std::string Detokenizer::Push(int32_t id) {
  std::string text;
  if (skip_special_ && tokenizer_->IsSpecial(id)) return text;
  if (tokenizer_->TokenText(id).empty()) return text;  // no such token
  if (tokenizer_->IsByteToken(id)) {
    absl::StrAppend(&run_, tokenizer_->TokenBytes(id));
    return text;
  }
  EndRun(&text);
  if (first_) {
    AppendPiece(tokenizer_->FirstTokenBytes(id), &text);
  } else if (tokenizer_->decoder().space_between_tokens()) {
    AppendPiece(absl::StrCat(" ", tokenizer_->TokenBytes(id)), &text);
  } else {
    AppendPiece(tokenizer_->TokenBytes(id), &text);
  }
  return text;
}

void Detokenizer::EndRun(std::string* out) {
  if (run_.empty()) return;
  const TokenDecoder& decoder = tokenizer_->decoder();
  if (FindInvalidUtf8(run_) == absl::string_view::npos) {
    AppendPiece(decoder.Piece(absl::string_view(run_).substr(run_begin_), first_), out);
  } else {
    for (size_t i = run_begin_; i < run_.size(); ++i) AppendPiece(decoder.Piece("\uFFFD", first_), out);
  }
  run_.clear();
  run_begin_ = 0;
}

void Detokenizer::AppendPiece(absl::string_view bytes, std::string* out) {
  first_ = false;
  std::string characters;
  assembler_.Push(bytes, &characters);
  absl::StrAppend(out, text_.Push(characters));
}

std::string Detokenizer::Flush() {
  std::string text, characters;
  EndRun(&text);
  assembler_.Flush(&characters);
  return absl::StrCat(text, text_.Push(characters));
}

}  // namespace sluice
