#include "engine/text/character_bpe.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "engine/base/status_macros.h"
#include "engine/text/utf8.h"

namespace sluice {
namespace {

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

int ParseByteToken(absl::string_view token) {
  if (token.size() != 6 || token.substr(0, 3) != "<0x" || token[5] != '>') return -1;
  const int high = HexDigit(token[3]), low = HexDigit(token[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

absl::StatusOr<CharacterBpe> CharacterBpe::Create(const TokenizerSpec& spec) {
  CharacterBpe bpe;
  bpe.ids_ = IndexTokens(spec);
  SLUICE_ASSIGN_OR_RETURN(bpe.merges_, MergeTable::Create(spec.merges, bpe.ids_));
  for (int b = 0; b < 256; ++b) {
    const auto it = bpe.ids_.find(absl::StrFormat("<0x%02X>", b));
    bpe.byte_ids_[b] = it == bpe.ids_.end() || !spec.byte_fallback ? -1 : it->second;
  }
  bpe.unk_id_ = spec.unk_id.value_or(-1);
  bpe.ignore_merges_ = spec.ignore_merges;
  bpe.fuse_unk_ = spec.fuse_unk;
  return bpe;
}

void CharacterBpe::Encode(absl::string_view word, MergeScratch* scratch, std::vector<int32_t>* ids) const {
  if (ignore_merges_) {
    if (const auto it = ids_.find(word); it != ids_.end()) {
      ids->push_back(it->second);
      return;
    }
  }
  std::vector<BpeSymbol>& symbols = scratch->symbols;
  symbols.clear();
  const auto push = [&symbols](int32_t id) {
    const uint32_t place = static_cast<uint32_t>(symbols.size());
    symbols.push_back({.id = id, .begin = place, .end = place + 1});
  };
  // An unknown token waits until the next character that is a token, or unknown and not fused with it. Bytes do not end
  // the waiting (they overtake it): so it is in the reference.
  bool waiting = false;
  for (size_t begin = 0; begin < word.size();) {
    const absl::string_view character = word.substr(begin, Utf8Length(word[begin]));
    const auto it = ids_.find(character);
    const auto has_byte = [this](char c) { return byte_ids_[static_cast<uint8_t>(c)] >= 0; };
    if (it != ids_.end()) {
      if (waiting) push(unk_id_);
      waiting = false;
      push(it->second);
    } else if (std::all_of(character.begin(), character.end(), has_byte)) {
      for (const char c : character) push(byte_ids_[static_cast<uint8_t>(c)]);
    } else if (unk_id_ >= 0) {
      if (waiting && !fuse_unk_) push(unk_id_);
      waiting = true;
    }
    begin += character.size();
  }
  if (waiting) push(unk_id_);
  if (symbols.empty()) return;
  MergeSymbols(scratch,
               [this](const BpeSymbol& left, const BpeSymbol& right) { return merges_.Find(left.id, right.id); });
  for (int32_t i = 0; i >= 0; i = symbols[i].next) ids->push_back(symbols[i].id);
}

}  // namespace sluice
