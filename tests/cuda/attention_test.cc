// Paged attention: every form against double precision, and every row with the same bits in whichever step it runs.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "tests/cuda/attention_harness.h"

namespace sluice::cuda_testing {
namespace {

using cuda::Element;
using cuda::KvElement;

double Tolerance(const AttentionSetup& setup) { return setup.element == Element::kBF16 ? 5e-3 : 2e-5; }

void ExpectSameBits(const AttentionRows& got, const AttentionRows& want, const char* what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (const auto& [where, row] : got) {
    const auto other = want.find(where);
    ASSERT_NE(other, want.end()) << what;
    EXPECT_EQ(std::memcmp(row.data(), other->second.data(), row.size() * sizeof(float)), 0)
        << what << ": sequence " << where.first << " position " << where.second;
  }
}

std::vector<AttentionSetup> Setups() {
  const AttentionMask window64{MaskKind::kWindow, 64}, window100{MaskKind::kWindow, 100}, chunk96{MaskKind::kChunk, 96},
      window1{MaskKind::kWindow, 1};
  const auto f32 = Element::kF32;
  const auto bf16 = Element::kBF16;
  std::vector<AttentionSetup> setups;
  // Types.
  for (KvElement kv : {KvElement::kF32, KvElement::kF16, KvElement::kBF16, KvElement::kF8E4M3}) {
    setups.push_back({.head_dim = 32, .value_dim = 32, .element = f32, .kv = kv});
    setups.push_back({.head_dim = 64, .value_dim = 64, .element = bf16, .kv = kv});
  }
  // Groups.
  for (int32_t group : {1, 2, 3, 4, 5, 8, 16, 20}) {
    setups.push_back({.num_heads = 2 * group, .head_dim = 16, .value_dim = 16, .kv = KvElement::kF16});
  }
  setups.push_back({.num_heads = 72, .num_kv_heads = 1, .head_dim = 32, .value_dim = 32});
  // Head sizes.
  for (int32_t dim : {8, 24, 40, 48, 72, 80, 96, 112, 128, 256}) {
    setups.push_back({.num_heads = 2, .num_kv_heads = 1, .head_dim = dim, .value_dim = dim});
  }
  setups.push_back({.num_heads = 2, .num_kv_heads = 2, .head_dim = 192, .value_dim = 128});
  setups.push_back({.num_heads = 2, .num_kv_heads = 2, .head_dim = 24, .value_dim = 16});
  // Blocks.
  for (int32_t block_size : {8, 64, 256}) {
    setups.push_back({.head_dim = 64, .value_dim = 64, .block_size = block_size});
    setups.push_back(
        {.head_dim = 32, .value_dim = 32, .element = f32, .kv = KvElement::kF32, .block_size = block_size});
  }
  // Masks, softcap, sinks.
  for (const AttentionMask& mask : {window1, window64, window100, chunk96, AttentionMask{}}) {
    setups.push_back({.head_dim = 32, .value_dim = 32, .block_size = 8, .mask = mask, .sinks = true});
    setups.push_back({.head_dim = 64, .value_dim = 64, .mask = mask, .softcap = 2});
    setups.push_back({.num_heads = 2,
                      .num_kv_heads = 1,
                      .head_dim = 16,
                      .value_dim = 16,
                      .element = f32,
                      .kv = KvElement::kF32,
                      .mask = mask,
                      .softcap = 3,
                      .sinks = true});
  }
  // MLA, absorbed.
  for (int32_t heads : {1, 3, 16, 20}) {
    setups.push_back({.num_heads = heads, .num_kv_heads = 1, .head_dim = 48, .value_dim = 0, .latent_value_dim = 32});
  }
  setups.push_back({.num_heads = 16, .num_kv_heads = 1, .head_dim = 576, .value_dim = 0, .latent_value_dim = 512});
  setups.push_back({.num_heads = 4,
                    .num_kv_heads = 1,
                    .head_dim = 80,
                    .value_dim = 0,
                    .latent_value_dim = 64,
                    .kv = KvElement::kF16,
                    .block_size = 64});
  setups.push_back({.num_heads = 4,
                    .num_kv_heads = 1,
                    .head_dim = 48,
                    .value_dim = 0,
                    .latent_value_dim = 32,
                    .element = f32,
                    .kv = KvElement::kF32,
                    .mask = window100});
  return setups;
}

class AttentionTest : public testing::TestWithParam<AttentionSetup> {};

// Lengths around every boundary; sequences without rows between them; a sequence of several rows.
TEST_P(AttentionTest, AgreesWithDoublePrecision) {
  const AttentionHarness harness(GetParam());
  std::vector<RowsOf> decode;
  const int32_t bs = GetParam().block_size;
  for (int32_t length : {1, 2, bs - 1, bs, bs + 1, 63, 64, 65, 255, 256, 257, 600}) {
    decode.push_back({static_cast<int32_t>(decode.size()), length - 1, 1});
  }
  EXPECT_LE(RelativeError(harness, harness.Run(decode)), Tolerance(GetParam()));

  const AttentionRows mixed = harness.Run({{20, 0, 21}, {21, 0, 0}, {22, 250, 9}, {23, 64, 1}, {24, 0, 1}}, {3, 2});
  EXPECT_EQ(mixed.size(), 32u);
  EXPECT_LE(RelativeError(harness, mixed), Tolerance(GetParam()));
}

TEST_P(AttentionTest, RowsHaveTheSameBitsInEveryStep) {
  const AttentionHarness harness(GetParam());
  const int32_t first = 240, length = 275;  // across the end of an item
  const AttentionRows whole = harness.Run({{7, first, length - first}});
  ExpectSameBits(harness.RunInChunks(7, length, 1, first), whole, "chunks of 1");
  ExpectSameBits(harness.RunInChunks(7, length, 7, first), whole, "chunks of 7");
  ExpectSameBits(harness.RunInChunks(7, length, 32, first), whole, "chunks of 32");

  // Beside others, in a step that is all decode rows and in one that is not.
  AttentionRows batched = harness.Run({{3, 599, 1}, {7, 270, 1}, {5, 0, 1}}, {1, 1});
  ExpectSameBits({*batched.find({7, 270})}, {*whole.find({7, 270})}, "among decode rows");
  batched = harness.Run({{3, 100, 40}, {7, 270, 1}, {5, 0, 1}});
  ExpectSameBits({*batched.find({7, 270})}, {*whole.find({7, 270})}, "beside a longer run");
}

// What the plan has no room to take apart is taken in one piece.
TEST_P(AttentionTest, RowsHaveTheSameBitsWhateverThePlanHasRoomFor) {
  const AttentionHarness harness(GetParam());
  const std::vector<RowsOf> step = {{0, 599, 1}, {1, 799, 1}, {2, 300, 1}, {3, 5, 1}};
  const AttentionRows wanted = harness.Run(step);
  for (int32_t room : {0, 256, 1024}) {
    ExpectSameBits(harness.Run(step, {.max_total_context = room}), wanted, "smaller plan");
  }
}

INSTANTIATE_TEST_SUITE_P(Setups, AttentionTest, testing::ValuesIn(Setups()),
                         [](const auto& info) { return std::to_string(info.index) + "_" + info.param.Name(); });

TEST(AttentionStep, OfPaddingAloneDoesNothing) {
  const AttentionHarness harness(AttentionSetup{});
  EXPECT_TRUE(harness.Run({}, {4, 4}).empty());
  EXPECT_TRUE(harness.Run({{0, 0, 0}}, {2, 0}).empty());
}

// Several hundred sequences: more than the plan's block has threads.
TEST(AttentionStep, OfManySequences) {
  const AttentionHarness harness({.num_heads = 1, .num_kv_heads = 1, .head_dim = 16, .value_dim = 16});
  std::vector<RowsOf> step;
  for (int32_t i = 0; i < 300; ++i) step.push_back({i, i % 3 == 0 ? 256 + i : i % 7, 1});
  const AttentionRows rows = harness.Run(step, {20, 20});
  EXPECT_EQ(rows.size(), 300u);
  EXPECT_LE(RelativeError(harness, rows), 5e-3);
}

}  // namespace
}  // namespace sluice::cuda_testing
