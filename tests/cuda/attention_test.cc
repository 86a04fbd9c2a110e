// Paged attention: every form against double precision, and every row with the same bits in whichever step it runs.
#include "engine/ops/cuda/kernels/attention.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <vector>

#include "tests/cuda/attention_harness.h"
#include "tests/cuda/device_array.h"

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

constexpr auto kF32 = Element::kF32;
constexpr AttentionMask kWindow100{MaskKind::kWindow, 100};

AttentionSetup Heads(int32_t num_heads, int32_t num_kv_heads, int32_t dim, KvElement kv = KvElement::kBF16) {
  return {.num_heads = num_heads, .num_kv_heads = num_kv_heads, .head_dim = dim, .value_dim = dim, .kv = kv};
}
AttentionSetup Latent(int32_t num_heads, int32_t dim, int32_t value_dim, KvElement kv = KvElement::kBF16) {
  return {.num_heads = num_heads,
          .num_kv_heads = 1,
          .head_dim = dim,
          .value_dim = 0,
          .latent_value_dim = value_dim,
          .kv = kv};
}
AttentionSetup F32(AttentionSetup setup) {
  setup.element = kF32;
  setup.kv = KvElement::kF32;
  return setup;
}

// One of each kind of kernel and option.
std::vector<AttentionSetup> FewSetups() {
  std::vector<AttentionSetup> setups = {Heads(4, 2, 32), Heads(3, 1, 64, KvElement::kF16), F32(Heads(2, 1, 16)),
                                        Latent(3, 48, 32)};
  setups[0].mask = kWindow100;
  setups[0].block_size = 8;
  setups[0].sinks = true;
  setups[1].softcap = 2;
  setups[1].mask = {MaskKind::kChunk, 96};
  setups[1].block_size = 64;
  setups[2].mask = kWindow100;
  return setups;
}

std::vector<AttentionSetup> AllSetups() {
  std::vector<AttentionSetup> setups;
  const auto add = [&](AttentionSetup setup) -> AttentionSetup& { return setups.emplace_back(setup); };
  for (KvElement kv : {KvElement::kF32, KvElement::kF16, KvElement::kBF16, KvElement::kF8E4M3}) {
    add(Heads(2, 1, 64, kv));
    add(Heads(2, 1, 32, kv)).element = kF32;
  }
  for (int32_t group : {1, 2, 3, 4, 5, 8, 16, 20}) add(Heads(2 * group, 2, 32, KvElement::kF16));
  add(Heads(72, 1, 32));
  for (int32_t dim : {8, 24, 40, 72, 80, 96, 128, 256}) add(Heads(2, 1, dim));
  add(Heads(2, 2, 192)).value_dim = 128;
  add(Heads(2, 2, 24)).value_dim = 16;
  for (int32_t block_size : {8, 64, 256}) {
    add(Heads(2, 1, 64)).block_size = block_size;
    add(F32(Heads(2, 1, 16))).block_size = block_size;
  }
  for (const AttentionMask& mask :
       {AttentionMask{}, AttentionMask{MaskKind::kWindow, 1}, AttentionMask{MaskKind::kWindow, 64}, kWindow100,
        AttentionMask{MaskKind::kChunk, 96}, AttentionMask{MaskKind::kChunk, 256}}) {
    for (AttentionSetup setup : {Heads(2, 1, 32), Heads(2, 1, 64), F32(Heads(2, 1, 16))}) {
      AttentionSetup& added = add(setup);
      added.mask = mask;
      added.block_size = 8;
      added.sinks = setup.head_dim != 64;
      added.softcap = setup.head_dim != 32 ? 2 : 0;
    }
  }
  for (int32_t heads : {1, 16, 20}) add(Latent(heads, 48, 32));
  add(Latent(4, 48, 32, KvElement::kF16)).mask = kWindow100;
  add(Latent(4, 80, 64)).block_size = 64;  // in plain code
  add(F32(Latent(4, 48, 32))).mask = kWindow100;
  add(Latent(16, 576, 512)).block_size = 64;
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
  const int32_t first = 244, length = 264;  // across the end of an item
  const AttentionRows whole = harness.Run({{7, first, length - first}});
  ExpectSameBits(harness.RunInChunks(7, length, 1, first), whole, "chunks of 1");
  ExpectSameBits(harness.RunInChunks(7, length, 7, first), whole, "chunks of 7");

  // Beside others, in a step that is all decode rows and in one that is not.
  AttentionRows batched = harness.Run({{3, 599, 1}, {7, 259, 1}, {5, 0, 1}}, {1, 1});
  ExpectSameBits({*batched.find({7, 259})}, {*whole.find({7, 259})}, "among decode rows");
  batched = harness.Run({{3, 100, 40}, {7, 259, 1}, {5, 0, 1}});
  ExpectSameBits({*batched.find({7, 259})}, {*whole.find({7, 259})}, "beside a longer run");
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

std::string NameOf(const testing::TestParamInfo<AttentionSetup>& info) {
  return std::to_string(info.index) + "_" + info.param.Name();
}
INSTANTIATE_TEST_SUITE_P(Few, AttentionTest, testing::ValuesIn(FewSetups()), NameOf);
INSTANTIATE_TEST_SUITE_P(All, AttentionTest, testing::ValuesIn(AllSetups()), NameOf);

// From the first position on, over two ends of items.
class AttentionPromptTest : public testing::TestWithParam<AttentionSetup> {};

TEST_P(AttentionPromptTest, ChunksHaveTheBitsOfOnePiece) {
  const AttentionHarness harness(GetParam());
  const AttentionRows whole = harness.Run({{1, 0, 300}});
  ExpectSameBits(harness.RunInChunks(1, 300, 32), whole, "chunks of 32");
  ExpectSameBits(harness.RunInChunks(1, 300, 77), whole, "chunks of 77");
}
INSTANTIATE_TEST_SUITE_P(All, AttentionPromptTest, testing::ValuesIn(FewSetups()), NameOf);

TEST(AttentionStep, OfPaddingAloneDoesNothing) {
  const AttentionHarness harness(AttentionSetup{});
  EXPECT_TRUE(harness.Run({}, {4, 4}).empty());
  EXPECT_TRUE(harness.Run({{0, 0, 0}}, {2, 0}).empty());
}

// Several hundred sequences: more than the plan's block has threads.
TEST(AttentionStep, OfManySequences) {
  const AttentionHarness harness(Heads(1, 1, 32));
  std::vector<RowsOf> step;
  for (int32_t i = 0; i < 300; ++i) step.push_back({i, i % 3 == 0 ? 256 + i : i % 7, 1});
  const AttentionRows rows = harness.Run(step, {20, 20});
  EXPECT_EQ(rows.size(), 300u);
  EXPECT_LE(RelativeError(harness, rows), 5e-3);
}

// The example at the head of attention_plan.cuh.
class PlannedStep {
 public:
  PlannedStep(const std::vector<int32_t>& positions, const std::vector<int32_t>& row_starts, int32_t rows_per_token,
              int64_t max_total_context)
      : num_seqs_(row_starts.size() - 1),
        slots_(static_cast<size_t>(max_total_context / cuda::kAttentionItem) + 2 * num_seqs_),
        counts_(8) {
    std::vector<int32_t> row_sequences;
    for (size_t s = 0; s < num_seqs_; ++s) row_sequences.resize(static_cast<size_t>(row_starts[s + 1]), int32_t(s));
    DeviceArray<int32_t> d_positions(positions), d_row_sequences(row_sequences), d_row_starts(row_starts);
    cuda::StepArrays step;
    step.num_tokens = static_cast<int32_t>(positions.size());
    step.num_seqs = static_cast<int32_t>(num_seqs_);
    step.positions = d_positions.data();
    step.row_sequences = d_row_sequences.data();
    step.row_starts = d_row_starts.data();
    step.row_ends = d_row_starts.data() + 1;
    cuda::AttentionPlan plan;
    plan.limits = {step.num_tokens, step.num_seqs, max_total_context};
    DeviceArray<int32_t> items(static_cast<size_t>(cuda::AttentionPlanInts(plan.limits)));
    plan.counts = counts_.data();
    plan.items = items.data();
    cuda::LaunchPlanAttention(step, {}, rows_per_token, plan, nullptr);
    items_ = items.Read();
  }

  // Parts, merges, tiles.
  std::vector<int32_t> counts() const {
    std::vector<int32_t> counts = counts_.Read();
    counts.resize(3);
    return counts;
  }
  std::vector<int32_t> parts(size_t num) const { return Ints(0, 4 * num); }
  std::vector<int32_t> merges(size_t num) const { return Ints(4 * slots_, 3 * num); }
  std::vector<int32_t> tiles(size_t num) const { return Ints(4 * slots_ + 3 * num_seqs_, 2 * num); }

 private:
  std::vector<int32_t> Ints(size_t first, size_t num) const {
    return {items_.begin() + static_cast<ptrdiff_t>(first), items_.begin() + static_cast<ptrdiff_t>(first + num)};
  }

  const size_t num_seqs_, slots_;
  DeviceArray<int32_t> counts_;
  std::vector<int32_t> items_;
};

using Ints = std::vector<int32_t>;

TEST(AttentionPlan, OfTheWorkedExample) {
  const PlannedStep decode({99, 599, 299}, {0, 1, 2, 3}, 1, 1000);
  EXPECT_EQ(decode.counts(), Ints({6, 2, 0}));
  EXPECT_EQ(decode.parts(6), Ints({0, 0, 1, 6, 1, 0, 1, 0, 1, 1, 2, 1, 1, 2, 3, 2, 2, 0, 1, 3, 2, 1, 2, 4}));
  EXPECT_EQ(decode.merges(2), Ints({1, 0, 3, 2, 3, 2}));

  // With fewer slots the last row is one part.
  const PlannedStep crowded({99, 599, 299}, {0, 1, 2, 3}, 1, 256);
  EXPECT_EQ(crowded.counts(), Ints({5, 1, 0}));
  EXPECT_EQ(crowded.parts(5), Ints({0, 0, 1, 4, 1, 0, 1, 0, 1, 1, 2, 1, 1, 2, 3, 2, 2, 0, 2, 6}));

  const PlannedStep mixed({0, 1, 2, 3, 4, 599}, {0, 5, 6}, 32, 605);
  EXPECT_EQ(mixed.counts(), Ints({3, 1, 3}));
  EXPECT_EQ(mixed.tiles(3), Ints({0, 0, 0, 2, 0, 4}));
}

}  // namespace
}  // namespace sluice::cuda_testing
