#include "engine/runtime/kv_sizing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/available_memory.h"
#include "engine/model/kv_groups.h"
#include "engine/scheduler/validate.h"
#include "tests/model/toy_model.h"

namespace sluice::testing {
namespace {

using ::testing::HasSubstr;

// 3 layers x 64 values x 16 tokens x 2 bytes.
constexpr int64_t kBlock = 3 * 64 * 16 * 2;
constexpr KvMemory kPlenty{int64_t{1} << 40};

absl::StatusOr<KvSizing> Size(KvSizingOptions options, const KvMemory& memory) {
  return SizeKvCache(ToySpec(), options, memory);
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
  const absl::StatusOr<KvSizing> sizing = Size({.max_num_seqs = 64}, {40 * kBlock});
  ASSERT_TRUE(sizing.ok()) << sizing.status();
  EXPECT_EQ(sizing->num_blocks, 20);
}

TEST(KvSizingTest, AutoTakesDedicatedMemoryUpToWhatSequencesFill) {
  absl::StatusOr<KvSizing> sizing = Size({.max_num_seqs = 64}, {40 * kBlock + 1, /*dedicated=*/true});
  ASSERT_TRUE(sizing.ok()) << sizing.status();
  EXPECT_EQ(sizing->num_blocks, 40);
  sizing = Size({.max_num_seqs = 64}, {int64_t{1} << 40, /*dedicated=*/true});
  ASSERT_TRUE(sizing.ok()) << sizing.status();
  EXPECT_EQ(sizing->num_blocks, 64 * 8);
  sizing = Size({.max_model_len = 128}, {7 * kBlock, /*dedicated=*/true});
  EXPECT_THAT(std::string(sizing.status().message()),
              HasSubstr("lower --max-model-len or lower --max-num-batched-tokens or --max-num-seqs, which set the"));
}

TEST(KvSizingTest, AContextNobodyAskedForShrinksToWhatFits) {
  const absl::StatusOr<KvSizing> sizing = Size({.kv_memory_bytes = 3 * kBlock}, kPlenty);
  ASSERT_TRUE(sizing.ok()) << sizing.status();
  EXPECT_EQ(sizing->max_model_len, 48);
}

TEST(KvSizingTest, ExplicitContextsAreKeptOrRefusedNamingFlags) {
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
  sizing = Size({.max_model_len = 128}, {8 * kBlock});
  EXPECT_EQ(sizing.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(sizing.status().message()), HasSubstr("set --kv-memory"));
}

TEST(KvSizingTest, LessThanABlockOrMoreThanThereIsIsRefused) {
  EXPECT_EQ(Size({.kv_memory_bytes = kBlock - 1}, kPlenty).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Size({}, {kBlock}).status().code(), absl::StatusCode::kResourceExhausted);
  const absl::Status status = Size({.kv_memory_bytes = 1 << 30}, {1 << 20}).status();
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

// Layers 0 and 2 slide: with 256 tokens of context the full layer is a group and so is each of the others.
ModelSpec HybridSpec() {
  ModelSpec spec = ToySpec();
  spec.max_position = 256;
  spec.layers[0].attention.mask = spec.layers[2].attention.mask = {MaskKind::kWindow, 30};
  AssignKvGroups(&spec);
  return spec;
}

TEST(KvSizingTest, CountsBlocksPerGroupAndSequencesAtTheirPeak) {
  const ModelSpec spec = HybridSpec();
  const int64_t block = KvBlockBytes(spec, 16, KvDType::kF16);
  EXPECT_EQ(block, kBlock / 3);
  // 16 blocks of the full group; of a window 1 + ceil((29 + 32 - 1) / 16) = 5.
  KvSizingOptions options{.max_num_seqs = 3, .max_num_batched_tokens = 32};
  absl::StatusOr<KvSizing> sizing = SizeKvCache(spec, options, kPlenty);
  ASSERT_TRUE(sizing.ok()) << sizing.status();
  EXPECT_EQ(sizing->num_blocks, 3 * (16 + 2 * 5));
  EXPECT_EQ(sizing->bytes, sizing->num_blocks * block);
  options.kv_memory_bytes = 26 * block;
  EXPECT_EQ(SizeKvCache(spec, options, kPlenty)->max_model_len, 256);
  options.kv_memory_bytes = 25 * block;
  EXPECT_EQ(SizeKvCache(spec, options, kPlenty)->max_model_len, 240);
  options.kv_memory_bytes = 3 * block;
  EXPECT_EQ(SizeKvCache(spec, options, kPlenty)->max_model_len, 16);
  options.kv_memory_bytes = 2 * block;
  const absl::Status status = SizeKvCache(spec, options, kPlenty).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << "not even a block for each group";
  EXPECT_THAT(std::string(status.message()), HasSubstr(std::to_string(3 * block) + " bytes"));
}

TEST(KvSizingTest, TheSchedulerTakesWhatTheSizingPromised) {
  const ModelSpec spec = HybridSpec();
  for (int32_t num_blocks = 3; num_blocks < 30; ++num_blocks) {
    const KvSizingOptions options{.kv_memory_bytes = num_blocks * KvBlockBytes(spec, 16, KvDType::kF16),
                                  .max_num_batched_tokens = 40};
    const absl::StatusOr<KvSizing> sizing = SizeKvCache(spec, options, kPlenty);
    ASSERT_TRUE(sizing.ok()) << sizing.status();
    EngineOptions engine;
    engine.vocab_size = spec.vocab_size;
    engine.kv_groups = MakeKvGroups(spec).masks;
    engine.max_model_len = sizing->max_model_len;
    engine.num_blocks = sizing->num_blocks;
    engine.max_num_batched_tokens = options.max_num_batched_tokens;
    Request request;
    request.prompt_tokens.resize(size_t(sizing->max_model_len - 1));
    EXPECT_EQ(ValidateRequest(request, engine), absl::OkStatus()) << num_blocks << " blocks";
  }
}

TEST(KvSizingTest, WindowOnlyModelsNeedNoMoreForLongerContexts) {
  ModelSpec spec = ToySpec();
  spec.max_position = 1 << 20;
  for (LayerSpec& layer : spec.layers) layer.attention.mask = {MaskKind::kWindow, 64};
  AssignKvGroups(&spec);
  const absl::StatusOr<KvSizing> sizing = SizeKvCache(spec, {.max_num_seqs = 2}, kPlenty);
  ASSERT_TRUE(sizing.ok()) << sizing.status();
  EXPECT_EQ(sizing->num_blocks, 2 * (1 + (63 + 512 - 1 + 15) / 16));
  EXPECT_EQ(sizing->max_model_len, 1 << 20);
}

TEST(KvSizingTest, DynamicRopeMayBeStretchedByItsFactorIfAskedTo) {
  ModelSpec spec = ToySpec();
  spec.rope_tables[0].length_rule = DynamicNtkRule{.base = 1e4f, .factor = 2.5f, .max_position = 128};
  EXPECT_EQ(LongestContext(spec), 320);
  EXPECT_EQ(SizeKvCache(spec, {}, kPlenty)->max_model_len, 128);
  EXPECT_EQ(SizeKvCache(spec, {.max_model_len = 320}, kPlenty)->max_model_len, 320);
  const absl::Status status = SizeKvCache(spec, {.max_model_len = 321}, kPlenty).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("--max-model-len is 321, expected 1 to 320"));
  // A table that does not stretch sets the limit.
  spec.rope_tables.push_back(spec.rope_tables[0]);
  spec.rope_tables[1].length_rule = {};
  EXPECT_EQ(LongestContext(spec), 128);
  // Neither does a factor below 1 take anything away, nor a huge one leave the range of positions.
  spec.rope_tables.resize(1);
  spec.rope_tables[0].length_rule = DynamicNtkRule{.base = 1e4f, .factor = 0.5f, .max_position = 128};
  EXPECT_EQ(LongestContext(spec), 128);
  spec.rope_tables[0].length_rule = DynamicNtkRule{.base = 1e4f, .factor = 1e30f, .max_position = 128};
  EXPECT_EQ(LongestContext(spec), 1 << 28);
  spec.rope_tables.clear();
  EXPECT_EQ(LongestContext(spec), 128);
}

TEST(KvSizingTest, SomeMemoryIsAvailableHere) {
  EXPECT_GT(AvailableMemoryBytes(), int64_t{1} << 20);
  EXPECT_LT(AvailableMemoryBytes(), int64_t{1} << 50);
}

}  // namespace
}  // namespace sluice::testing
