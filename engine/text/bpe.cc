#include "engine/text/bpe.h"

#include <utility>

#include "engine/base/status_macros.h"
#include "engine/text/utf8.h"

namespace sluice {
namespace {

// The bytes that are printable in Latin-1, and so stand for themselves.
constexpr bool IsPrintable(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct ByteAlphabet {
  std::array<char16_t, 256> character{};  // [byte]
  std::array<int16_t, 0x144> byte{};      // [character], -1: not in the alphabet

  constexpr ByteAlphabet() {
    for (int16_t& b : byte) b = -1;
    char16_t next = 0x100;
    for (int b = 0; b < 256; ++b) {
      character[b] = IsPrintable(b) ? static_cast<char16_t>(b) : next++;
      byte[character[b]] = static_cast<int16_t>(b);
    }
  }
};
constexpr ByteAlphabet kAlphabet;

}  // namespace

char32_t ByteLevelCharacter(uint8_t byte) { return kAlphabet.character[byte]; }

void AppendByteLevelBytes(absl::string_view token, std::string* out) {
  const size_t start = out->size();
  for (absl::string_view rest = token; !rest.empty();) {
    // Alphabet characters take one or two bytes, so a lead byte below E0 is enough to decode safely even in a broken
    // token.
    const uint8_t lead = static_cast<uint8_t>(rest[0]);
    const size_t length = lead < 0x80 ? 1 : 2;
    const bool decodable = lead < 0x80 || (lead >= 0xC2 && lead < 0xE0 && rest.size() >= 2 && (rest[1] & 0xC0) == 0x80);
    const char32_t character = decodable ? DecodeUtf8(rest) : char32_t{0};
    if (character >= kAlphabet.byte.size() || kAlphabet.byte[character] < 0) {
      out->resize(start);
      out->append(token.data(), token.size());
      return;
    }
    out->push_back(static_cast<char>(kAlphabet.byte[character]));
    rest.remove_prefix(length);
  }
}

absl::StatusOr<ByteLevelBpe> ByteLevelBpe::Create(const TokenizerSpec& spec) {
  TokenIds ids = IndexTokens(spec);
  ByteLevelBpe bpe;
  for (int b = 0; b < 256; ++b) {
    std::string symbol;
    AppendUtf8(ByteLevelCharacter(static_cast<uint8_t>(b)), &symbol);
    const auto it = ids.find(symbol);
    bpe.byte_ids_[b] = it == ids.end() ? -1 : it->second;
  }
  SLUICE_ASSIGN_OR_RETURN(bpe.merges_, MergeTable::Create(spec.merges, ids));
  if (spec.ignore_merges) bpe.whole_words_ = std::move(ids);
  return bpe;
}

void ByteLevelBpe::Encode(absl::string_view word, MergeScratch* scratch, std::vector<int32_t>* ids) const {
  if (!whole_words_.empty()) {
    std::string spelled;
    for (const char c : word) AppendUtf8(ByteLevelCharacter(static_cast<uint8_t>(c)), &spelled);
    if (const auto it = whole_words_.find(spelled); it != whole_words_.end()) {
      ids->push_back(it->second);
      return;
    }
  }
  std::vector<BpeSymbol>& symbols = scratch->symbols;
  symbols.clear();
  for (size_t i = 0; i < word.size(); ++i) {
    const int32_t id = byte_ids_[static_cast<uint8_t>(word[i])];
    if (id < 0) continue;
    const uint32_t begin = static_cast<uint32_t>(i);
    symbols.push_back({.id = id, .begin = begin, .end = begin + 1});
  }
  if (symbols.empty()) return;
  MergeSymbols(scratch,
               [this](const BpeSymbol& left, const BpeSymbol& right) { return merges_.Find(left.id, right.id); });
  for (int32_t i = 0; i >= 0; i = symbols[i].next) ids->push_back(symbols[i].id);
}

}  // namespace sluice
