// Expected: `openssl mac -macopt hexkey:000102030405060708090a0b0c0d0e0f -macopt size:16 SIPHASH` of the bytes 0, 1, 2 and so on.
// The first is also in the reference implementation's vectors.h.
#include "engine/base/siphash.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/escaping.h"

namespace sluice {
namespace {

std::string HexOf(int num_words) {
  SipHash128 hash(absl::MakeUint128(0x0f0e0d0c0b0a0908, 0x0706050403020100));
  for (int i = 0; i < num_words; ++i) {
    uint64_t word = 0;
    for (int byte = 0; byte < 8; ++byte) word |= uint64_t((8 * i + byte) % 256) << 8 * byte;
    hash.Add(word);
  }
  absl::uint128 result = hash.Finish();
  std::string bytes;
  for (int i = 0; i < 16; ++i, result >>= 8) bytes.push_back(char(absl::Uint128Low64(result) & 0xff));
  return absl::BytesToHexString(bytes);
}

TEST(SipHash128Test, IsWhatOpenSslComputes) {
  EXPECT_EQ(HexOf(0), "a3817f04ba25a8e66df67214c7550293");
  EXPECT_EQ(HexOf(1), "3b62a9ba6258f5610f83e264f31497b4");
  EXPECT_EQ(HexOf(2), "6ee2a4ca67b054bbfd3315bf85230577");
  EXPECT_EQ(HexOf(9), "39359f50fcc6f5062508c9047f827ea2");
  EXPECT_EQ(HexOf(33), "8d60aa7ab2b4162365783f89af9777fb") << "longer than the length's byte counts";
}

TEST(SipHash128Test, AWideWordIsTwoWords) {
  SipHash128 wide(7), narrow(7);
  wide.Add(absl::MakeUint128(5, 9));
  narrow.Add(uint64_t{9});
  narrow.Add(uint64_t{5});
  EXPECT_EQ(wide.Finish(), narrow.Finish());
}

TEST(SipHash128Test, DependsOnAllOfTheKey) {
  SipHash128 none(0), low(1), high(absl::MakeUint128(1, 0));
  const absl::uint128 hash = none.Finish();
  EXPECT_NE(hash, low.Finish());
  EXPECT_NE(hash, high.Finish());
}

}  // namespace
}  // namespace sluice
