#include "engine/text/bpe.h"

#include "absl/strings/str_cat.h"
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

uint64_t PairKey(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

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

absl::StatusOr<ByteLevelBpe> ByteLevelBpe::Create(const TokenizerSpec& spec, bool ignore_merges) {
  absl::flat_hash_map<absl::string_view, int32_t> ids;
  ids.reserve(spec.tokens.size());
  for (size_t i = 0; i < spec.tokens.size(); ++i) ids.try_emplace(spec.tokens[i], static_cast<int32_t>(i));
  const auto find = [&ids](absl::string_view token) {
    const auto it = ids.find(token);
    return it == ids.end() ? -1 : it->second;
  };

  ByteLevelBpe bpe;
  for (int b = 0; b < 256; ++b) {
    std::string symbol;
    AppendUtf8(ByteLevelCharacter(static_cast<uint8_t>(b)), &symbol);
    bpe.byte_ids_[b] = find(symbol);
  }

  bpe.merges_.reserve(spec.merges.size());
  std::string joined;
  for (size_t rank = 0; rank < spec.merges.size(); ++rank) {
    const MergeRule& rule = spec.merges[rank];
    joined.assign(rule.left.data(), rule.left.size());
    joined.append(rule.right.data(), rule.right.size());
    const int32_t left = find(rule.left), right = find(rule.right), merged = find(joined);
    if (rule.right.empty() || left < 0 || right < 0 || merged < 0) {
      const absl::string_view missing = left < 0 ? rule.left : right < 0 ? rule.right : absl::string_view(joined);
      return absl::InvalidArgumentError(absl::StrCat(
          "tokenizer merges[", rank, "]: \"", rule.left, "\" + \"", rule.right, "\": ",
          rule.right.empty()
              ? "found one part, expected two"
              : absl::StrCat("\"", missing, "\" is no token, expected both parts and their result to be")));
    }
    // A pair listed twice has its later rank, as in Hugging Face's.
    bpe.merges_[PairKey(left, right)] = {static_cast<uint32_t>(rank), merged};
  }
  if (ignore_merges) bpe.whole_words_ = std::move(ids);
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
  MergeSymbols(scratch, [this](const BpeSymbol& left, const BpeSymbol& right) {
    const auto it = merges_.find(PairKey(left.id, right.id));
    return it == merges_.end() ? BpeMerge() : it->second;
  });
  for (int32_t i = 0; i >= 0; i = symbols[i].next) ids->push_back(symbols[i].id);
}

}  // namespace sluice
