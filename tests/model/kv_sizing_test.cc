#include "engine/runtime/kv_sizing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/model/toy_model.h"

namespace sluice::testing {
namespace {

using ::testing::HasSubstr;

// 3 layers x 64 values x 16 tokens x 2 bytes.
constexpr int64_t kBlock = 3 * 64 * 16 * 2;
constexpr int64_t kPlenty = int64_t{1} << 40;

absl::StatusOr<KvSizing> Size(KvSizingOptions options, int64_t available) {
  return SizeKvCache(ToySpec(), options, available);
}

TEST(KvSizingTest, BlockBytesFollowTheShapeAndTheType) {
  EXPECT_EQ(KvBlockBytes(ToySpec(), 16, KvDType::kF16), kBlock);
  EXPECT_EQ(KvBlockBytes(ToySpec(), 32, KvDType::kF32), 4 * kBlock);
  EXPECT_EQ(KvBlockBytes(ToySpec(), 16, KvDType::kF8E4M3), kBlock / 2);
}

TEST(KvSizingTest, AGivenBudgetIsFilledWithWholeBlocks) {
  const absl::StatusOr<KvSizing> sizing = Size({.kv_memory_bytes = 10 * kBlock + 5}, kPlenty);
  ASSERT_TRUE(sizing.ok()) << sizing.status();
  EXPECT_EQ(sizing->num_blocks, 10);
  EXPECT_EQ(sizing->bytes, 10 * kBlock);
  EXPECT_EQ(sizing->max_model_len, 128);  // the trained context
}

TEST(KvSizingTest, AutoGivesEverySequenceItsFullContext) {
  const absl::StatusOr<KvSizing> sizing = Size({.max_num_seqs = 5}, kPlenty);
  ASSERT_TRUE(sizing.ok()) << sizing.status();
  EXPECT_EQ(sizing->num_blocks, 5 * 8);
}

TEST(KvSizingTest, AutoTakesHalfOfWhatIsThereAtMost) {
  const absl::StatusOr<KvSizing> sizing = Size({.max_num_seqs = 64}, 40 * kBlock);
  ASSERT_TRUE(sizing.ok()) << sizing.status();
  EXPECT_EQ(sizing->num_blocks, 20);
}

TEST(KvSizingTest, AContextNobodyAskedForShrinksToWhatFits) {
  const absl::StatusOr<KvSizing> sizing = Size({.kv_memory_bytes = 3 * kBlock}, kPlenty);
  ASSERT_TRUE(sizing.ok()) << sizing.status();
  EXPECT_EQ(sizing->max_model_len, 48);
}

TEST(KvSizingTest, AContextThatWasAskedForIsKeptOrRefusedWithTheNumbersAndTheFlags) {
  absl::StatusOr<KvSizing> sizing = Size({.kv_memory_bytes = 3 * kBlock, .max_model_len = 40}, kPlenty);
  ASSERT_TRUE(sizing.ok()) << sizing.status();
  EXPECT_EQ(sizing->max_model_len, 40);
  sizing = Size({.kv_memory_bytes = 3 * kBlock, .max_model_len = 49}, kPlenty);
  EXPECT_EQ(sizing.status().code(), absl::StatusCode::kResourceExhausted);
  for (const std::string& part :
       {std::string("49 tokens"), std::to_string(4 * kBlock) + " bytes", std::to_string(3 * kBlock) + " bytes",
        std::string("raise --kv-memory"), std::string("lower --max-model-len")}) {
    EXPECT_THAT(std::string(sizing.status().message()), HasSubstr(part));
  }
  sizing = Size({.max_model_len = 128}, 8 * kBlock);
  EXPECT_EQ(sizing.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(sizing.status().message()), HasSubstr("set --kv-memory"));
}

TEST(KvSizingTest, LessThanABlockOrMoreThanThereIsIsRefused) {
  EXPECT_EQ(Size({.kv_memory_bytes = kBlock - 1}, kPlenty).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Size({}, kBlock).status().code(), absl::StatusCode::kResourceExhausted);
  const absl::Status status = Size({.kv_memory_bytes = 1 << 30}, 1 << 20).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("1073741824 bytes (1.00 GiB)"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("1048576 bytes (1.00 MiB)"));
}

TEST(KvSizingTest, NumbersOutOfRangeNameTheFlag) {
  for (const int32_t length : {0, -1, 129}) {
    const absl::Status status = Size({.max_model_len = length}, kPlenty).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("--max-model-len is " + std::to_string(length)));
  }
  EXPECT_EQ(Size({.kv_memory_bytes = 0}, kPlenty).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(KvSizingTest, SomeMemoryIsAvailableHere) {
  EXPECT_GT(AvailableMemoryBytes(), int64_t{1} << 20);
  EXPECT_LT(AvailableMemoryBytes(), int64_t{1} << 50);
}

}  // namespace
}  // namespace sluice::testing
