#include "engine/text/sentencepiece_bpe.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "absl/strings/str_cat.h"
#include "engine/base/quote.h"
#include "engine/text/character_bpe.h"
#include "engine/text/utf8.h"

namespace sluice {
namespace {

constexpr absl::string_view kSpaceMark = "\xE2\x96\x81";  // ▁ U+2581

bool MayResultFromMerging(TokenType type) {
  return type == TokenType::kNormal || type == TokenType::kUserDefined || type == TokenType::kUnused;
}

}  // namespace

void AppendSentencePieceBytes(absl::string_view token, TokenType type, std::string* out) {
  if (type == TokenType::kByte) {
    if (const int byte = ParseByteToken(token); byte >= 0) {
      out->push_back(static_cast<char>(byte));
      return;
    }
  }
  for (size_t i = 0; i < token.size();) {
    if (token.substr(i, kSpaceMark.size()) == kSpaceMark) {
      out->push_back(' ');
      i += kSpaceMark.size();
    } else {
      out->push_back(token[i++]);
    }
  }
}

absl::StatusOr<SentencePieceBpe> SentencePieceBpe::Create(const TokenizerSpec& spec) {
  if (spec.scores.size() != spec.tokens.size()) {
    return absl::InvalidArgumentError(absl::StrCat("tokenizer scores: found ", spec.scores.size(),
                                                   ", expected one for each of ", spec.tokens.size(), " tokens"));
  }
  SentencePieceBpe bpe;
  bpe.byte_ids_.fill(-1);
  bpe.unk_id_ = spec.unk_id.value_or(-1);
  bpe.add_space_prefix_ = spec.add_space_prefix;

  std::vector<float> scores = spec.scores;
  for (size_t i = 0; i < scores.size(); ++i) {
    if (std::isnan(scores[i])) {
      return absl::InvalidArgumentError(absl::StrCat("tokenizer scores[", i, "]: found NaN, expected a number"));
    }
  }
  std::sort(scores.begin(), scores.end(), std::greater<float>());
  scores.erase(std::unique(scores.begin(), scores.end()), scores.end());

  bpe.pieces_.reserve(spec.tokens.size());
  for (size_t i = 0; i < spec.tokens.size(); ++i) {
    const absl::string_view token = spec.tokens[i];
    const TokenType type = spec.types.empty() ? TokenType::kNormal : spec.types[i];
    const int32_t id = static_cast<int32_t>(i);
    if (type == TokenType::kByte) {
      const int byte = ParseByteToken(token);
      if (byte < 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("tokenizer tokens[", i, "]: found ", Quote(token), " of type byte, expected the form <0x0A>"));
      }
      if (bpe.byte_ids_[byte] < 0) bpe.byte_ids_[byte] = id;
    } else if (MayResultFromMerging(type)) {
      const auto rank =
          std::lower_bound(scores.begin(), scores.end(), spec.scores[i], std::greater<float>()) - scores.begin();
      bpe.pieces_.try_emplace(token, Piece{id, static_cast<uint32_t>(rank)});
      bpe.longest_piece_ = std::max(bpe.longest_piece_, token.size());
    }
  }
  return bpe;
}

void SentencePieceBpe::Encode(absl::string_view text, MergeScratch* scratch, std::vector<int32_t>* ids) const {
  if (text.empty()) return;
  std::string marked;  // with ▁ for every space
  marked.reserve(text.size() + text.size() / 2 + kSpaceMark.size());
  if (add_space_prefix_) marked.append(kSpaceMark.data(), kSpaceMark.size());
  for (const char c : text) {
    if (c == ' ') {
      marked.append(kSpaceMark.data(), kSpaceMark.size());
    } else {
      marked.push_back(c);
    }
  }

  const absl::string_view source = marked;
  const auto find = [this, source](uint32_t begin, uint32_t end) -> const Piece* {
    if (end - begin > longest_piece_) return nullptr;
    const auto it = pieces_.find(source.substr(begin, end - begin));
    return it == pieces_.end() ? nullptr : &it->second;
  };
  std::vector<BpeSymbol>& symbols = scratch->symbols;
  symbols.clear();
  for (uint32_t begin = 0; begin < source.size();) {
    const uint32_t end = begin + static_cast<uint32_t>(Utf8Length(source[begin]));
    const Piece* piece = find(begin, end);
    symbols.push_back({.id = piece == nullptr ? -1 : piece->id, .begin = begin, .end = end});
    begin = end;
  }
  MergeSymbols(scratch, [&find](const BpeSymbol& left, const BpeSymbol& right) {
    const Piece* piece = find(left.begin, right.end);
    return piece == nullptr ? BpeMerge() : BpeMerge{piece->rank, piece->id};
  });
  bool after_unknown = false;
  for (int32_t i = 0; i >= 0; i = symbols[i].next) {
    if (symbols[i].id >= 0) {
      ids->push_back(symbols[i].id);
      after_unknown = false;
    } else {
      AppendFallback(source.substr(symbols[i].begin, symbols[i].end - symbols[i].begin), &after_unknown, ids);
    }
  }
}

void SentencePieceBpe::AppendFallback(absl::string_view character, bool* after_unknown,
                                      std::vector<int32_t>* ids) const {
  const auto byte_id = [this](char c) { return byte_ids_[static_cast<uint8_t>(c)]; };
  if (std::all_of(character.begin(), character.end(), [&](char c) { return byte_id(c) >= 0; })) {
    for (const char c : character) ids->push_back(byte_id(c));
    *after_unknown = false;
  } else {
    if (unk_id_ >= 0 && !*after_unknown) ids->push_back(unk_id_);
    *after_unknown = true;
  }
}

}  // namespace sluice
