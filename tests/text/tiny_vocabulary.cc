#include "tests/text/tiny_vocabulary.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/text/bpe.h"
#include "engine/text/utf8.h"

namespace sluice {

absl::string_view TinyVocabulary::Keep(absl::string_view text) { return storage_.emplace_back(text); }

int32_t TinyVocabulary::Add(absl::string_view text, TokenType type, float score) {
  spec.tokens.push_back(Keep(text));
  spec.types.push_back(type);
  if (spec.model == TokenizerModel::kSentencePieceBpe) spec.scores.push_back(score);
  return static_cast<int32_t>(spec.tokens.size()) - 1;
}

TinyVocabulary TinyVocabulary::ByteLevel(absl::string_view pre, absl::Span<const absl::string_view> merges,
                                         absl::Span<const absl::string_view> added) {
  TinyVocabulary v;
  v.spec.model = TokenizerModel::kByteLevelBpe;
  v.spec.pre = std::string(pre);
  for (int b = 0; b < 256; ++b) {
    std::string symbol;
    AppendUtf8(ByteLevelCharacter(static_cast<uint8_t>(b)), &symbol);
    v.Add(symbol, TokenType::kNormal);
  }
  for (const absl::string_view merge : merges) {
    const MergeRule rule = ParseMergeRule(v.Keep(merge));
    v.spec.merges.push_back(rule);
    v.Add(absl::StrCat(rule.left, rule.right), TokenType::kNormal);
  }
  for (const absl::string_view token : added) v.Add(token, TokenType::kControl);
  return v;
}

TinyVocabulary TinyVocabulary::SentencePiece(absl::Span<const absl::string_view> pieces, bool byte_tokens) {
  TinyVocabulary v;
  v.spec.model = TokenizerModel::kSentencePieceBpe;
  v.spec.unk_id = v.Add("<unk>", TokenType::kUnknown);
  v.spec.bos_id = v.Add("<s>", TokenType::kControl);
  v.spec.eos_id = v.Add("</s>", TokenType::kControl);
  for (int b = 0; b < 256 && byte_tokens; ++b) v.Add(absl::StrFormat("<0x%02X>", b), TokenType::kByte);
  float score = 0;
  for (const absl::string_view piece : pieces) v.Add(piece, TokenType::kNormal, score -= 1);
  return v;
}

}  // namespace sluice
