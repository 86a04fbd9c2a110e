#include "engine/text/ranked_bpe.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace sluice {

absl::StatusOr<RankedBpe> RankedBpe::Create(const TokenizerSpec& spec) {
  RankedBpe bpe;
  bpe.ids_.reserve(spec.tokens.size());
  for (size_t i = 0; i < spec.tokens.size(); ++i) {
    if (spec.tokens[i].empty() || (!spec.types.empty() && spec.types[i] != TokenType::kNormal)) continue;
    bpe.ids_.try_emplace(spec.tokens[i], static_cast<int32_t>(i));
    bpe.longest_ = std::max(bpe.longest_, spec.tokens[i].size());
  }
  for (int b = 0; b < 256; ++b) {
    const char byte = static_cast<char>(b);
    if (!bpe.ids_.contains(absl::string_view(&byte, 1))) {
      return absl::InvalidArgumentError(absl::StrCat("tokenizer tokens: byte ", b, " is no token, expected all 256"));
    }
  }
  return bpe;
}

int32_t RankedBpe::Find(absl::string_view bytes) const {
  if (bytes.size() > longest_) return -1;
  const auto it = ids_.find(bytes);
  return it == ids_.end() ? -1 : it->second;
}

void RankedBpe::Encode(absl::string_view word, MergeScratch* scratch, std::vector<int32_t>* ids) const {
  if (word.empty()) return;
  if (const int32_t whole = Find(word); whole >= 0) {
    ids->push_back(whole);
    return;
  }
  std::vector<BpeSymbol>& symbols = scratch->symbols;
  symbols.clear();
  for (uint32_t i = 0; i < word.size(); ++i) {
    symbols.push_back({.id = Find(word.substr(i, 1)), .begin = i, .end = i + 1});
  }
  MergeSymbols(scratch, [this, word](const BpeSymbol& left, const BpeSymbol& right) {
    const int32_t id = Find(word.substr(left.begin, right.end - left.begin));
    return id < 0 ? BpeMerge() : BpeMerge{static_cast<uint32_t>(id), id};
  });
  for (int32_t i = 0; i >= 0; i = symbols[i].next) ids->push_back(symbols[i].id);
}

}  // namespace sluice
