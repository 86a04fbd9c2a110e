// A set of tokens as bits of 32-bit words, the form in which grammar libraries give them: bit t % 32 of word t / 32 is set if
// token t is in it. A vocabulary whose size is no multiple of 32 leaves bits of the last word over; they mean nothing.
#pragma once

#include <cstdint>
#include <span>

namespace sluice {

inline constexpr int32_t kTokensPerWord = 32;

constexpr int32_t TokenBitmaskWords(int32_t vocab_size) { return (vocab_size + kTokensPerWord - 1) / kTokensPerWord; }

inline bool HasToken(std::span<const uint32_t> bitmask, int32_t token) {
  return bitmask[static_cast<size_t>(token / kTokensPerWord)] >> (token % kTokensPerWord) & 1;
}

inline void SetToken(std::span<uint32_t> bitmask, int32_t token, bool value) {
  uint32_t& word = bitmask[static_cast<size_t>(token / kTokensPerWord)];
  const uint32_t bit = uint32_t{1} << (token % kTokensPerWord);
  word = value ? word | bit : word & ~bit;
}

}  // namespace sluice
