// SipHash-2-4 with 128 bits of output (Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012, and its reference
// implementation): whoever does not know the key can neither predict a hash nor find two inputs with the same one.
#pragma once

#include <cstdint>

#include "absl/numeric/int128.h"

namespace sluice {

// Of a sequence of words, as the bytes of which, least significant first, it is defined. One use each; allocates nothing.
class SipHash128 {
 public:
  explicit SipHash128(absl::uint128 key);
  void Add(uint64_t word);
  void Add(absl::uint128 words);  // low word first
  absl::uint128 Finish();         // once, last

 private:
  void Rounds(int count);

  uint64_t v0_, v1_, v2_, v3_;
  uint64_t num_words_ = 0;
};

}  // namespace sluice
