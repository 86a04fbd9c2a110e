#include "engine/base/siphash.h"

#include <bit>

namespace sluice {

SipHash128::SipHash128(absl::uint128 key)
    : v0_(0x736f6d6570736575 ^ absl::Uint128Low64(key)),
      v1_(0x646f72616e646f6d ^ absl::Uint128High64(key) ^ 0xee),
      v2_(0x6c7967656e657261 ^ absl::Uint128Low64(key)),
      v3_(0x7465646279746573 ^ absl::Uint128High64(key)) {}

void SipHash128::Rounds(int count) {
  for (int i = 0; i < count; ++i) {
    v0_ += v1_;
    v2_ += v3_;
    v1_ = std::rotl(v1_, 13) ^ v0_;
    v3_ = std::rotl(v3_, 16) ^ v2_;
    v0_ = std::rotl(v0_, 32);
    v2_ += v1_;
    v0_ += v3_;
    v1_ = std::rotl(v1_, 17) ^ v2_;
    v3_ = std::rotl(v3_, 21) ^ v0_;
    v2_ = std::rotl(v2_, 32);
  }
}

void SipHash128::Add(uint64_t word) {
  ++num_words_;
  v3_ ^= word;
  Rounds(2);
  v0_ ^= word;
}

void SipHash128::Add(absl::uint128 words) {
  Add(absl::Uint128Low64(words));
  Add(absl::Uint128High64(words));
}

absl::uint128 SipHash128::Finish() {
  Add(num_words_ * 8 << 56);  // no bytes are left over; their number modulo 256
  v2_ ^= 0xee;
  Rounds(4);
  const uint64_t low = v0_ ^ v1_ ^ v2_ ^ v3_;
  v1_ ^= 0xdd;
  Rounds(4);
  return absl::MakeUint128(v0_ ^ v1_ ^ v2_ ^ v3_, low);
}

}  // namespace sluice
