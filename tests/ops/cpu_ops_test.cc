// The CPU's operations against the reference, and against themselves: nothing but a row's own sequence may change a
// bit.
#include "engine/ops/cpu/cpu_ops.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/cpu_info.h"
#include "engine/ops/cpu/kv_cache.h"
#include "engine/ops/reference/reference_ops.h"
#include "tests/ops/gone_blocks.h"
#include "tests/ops/layer_harness.h"

namespace sluice {
namespace {

std::unique_ptr<Ops> MakeCpuOps(int num_threads = 2, ActivationType activations = ActivationType::kF32,
                                std::optional<Isa> isa = {}) {
  return NewCpuOps({num_threads, isa, activations}).value();
}

void ExpectClose(const Trace& got, const Trace& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  double q = 0, attention = 0, after_attention = 0, after_ffn = 0, logits = 0;
  for (const auto& [key, reference] : want) {
    const RowTrace& row = got.at(key);
    q = std::max(q, RelativeError(row.q, reference.q));
    attention = std::max(attention, RelativeError(row.attention, reference.attention));
    after_attention = std::max(after_attention, RelativeError(row.after_attention, reference.after_attention));
    after_ffn = std::max(after_ffn, RelativeError(row.after_ffn, reference.after_ffn));
    logits = std::max(logits, RelativeError(row.logits, reference.logits));
  }
  EXPECT_LT(q, tolerance);
  EXPECT_LT(attention, tolerance);
  EXPECT_LT(after_attention, tolerance);
  EXPECT_LT(after_ffn, tolerance);
  EXPECT_LT(logits, tolerance);
}

void ExpectSameBits(const Trace& got, const Trace& want) {
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [key, reference] : want) {
    const RowTrace& row = got.at(key);
    const auto same = [](const std::vector<float>& a, const std::vector<float>& b) {
      return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
    };
    ASSERT_TRUE(same(row.q, reference.q)) << "q of sequence " << key.first << " position " << key.second;
    ASSERT_TRUE(same(row.attention, reference.attention)) << key.first << " " << key.second;
    ASSERT_TRUE(same(row.after_attention, reference.after_attention)) << key.first << " " << key.second;
    ASSERT_TRUE(same(row.after_ffn, reference.after_ffn)) << key.first << " " << key.second;
    ASSERT_TRUE(same(row.logits, reference.logits)) << key.first << " " << key.second;
  }
}

class EveryLayer : public testing::TestWithParam<LayerConfig> {};

TEST_P(EveryLayer, AgreesWithTheReferenceInF32) {
  auto reference = NewReferenceOps();
  auto cpu = MakeCpuOps();
  const Trace want = LayerHarness(GetParam(), reference.get()).Run(RaggedSchedule());
  ExpectClose(LayerHarness(GetParam(), cpu.get()).Run(RaggedSchedule()), want, 1e-5);
}

TEST_P(EveryLayer, GivesTheSameBitsHoweverComputed) {
  auto ops = MakeCpuOps(1);
  LayerHarness harness(GetParam(), ops.get());
  const Trace want = harness.Run({{{0, 300}}});
  const auto check = [&](LayerHarness& other, const Schedule& schedule) {
    Trace got = other.Run(schedule);
    std::erase_if(got, [](const auto& entry) { return entry.first.first != 0; });
    ExpectSameBits(got, want);
  };
  Schedule one_by_one, sevens;
  for (int i = 0; i < 300; ++i) one_by_one.push_back({{0, 1}});
  for (int i = 0; i < 300; i += 7)
    sevens.push_back({{5, i < 100 ? 3 : 1}, {0, std::min(7, 300 - i)}, {6, i == 0 ? 270 : 1}});
  check(harness, one_by_one);
  check(harness, sevens);
  for (int threads : {2, 3}) {
    auto more = MakeCpuOps(threads);
    LayerHarness other(GetParam(), more.get());
    check(other, {{{0, 300}}});
    check(other, sevens);
    check(other, one_by_one);
  }
  for (Isa isa : SupportedIsas()) {
    auto more = MakeCpuOps(2, ActivationType::kF32, isa);
    LayerHarness other(GetParam(), more.get());
    check(other, {{{1, 3}, {0, 290}}, {{0, 9}}, {{0, 1}, {1, 1}}});
  }
}

INSTANTIATE_TEST_SUITE_P(All, EveryLayer, testing::ValuesIn(LayerConfigs()),
                         [](const auto& info) { return info.param.name; });

struct Precision {
  std::string name;
  TensorType weights;
  ActivationType activations;
  KvDType kv;
  double tolerance;
};

class EveryPrecision : public testing::TestWithParam<Precision> {};

LayerConfig ConfigOf(const Precision& p) {
  LayerConfig config;
  config.d_model = 256, config.hidden = 256;
  config.heads = {4, 2, 64, 64}, config.num_rotary = 64;
  config.weights = p.weights, config.kv = p.kv;
  config.rope = RopeLayout::kInterleaved;
  config.qk_norm = QkNormKind::kPerHead;  // random weights of some types are large: without it one key takes all
  config.score_scale = 1;
  return config;
}

TEST_P(EveryPrecision, AgreesWithTheReference) {
  const LayerConfig config = ConfigOf(GetParam());
  auto reference = NewReferenceOps();
  auto cpu = MakeCpuOps(2, GetParam().activations);
  const Trace want = LayerHarness(config, reference.get()).Run(RaggedSchedule());
  ExpectClose(LayerHarness(config, cpu.get()).Run(RaggedSchedule()), want, GetParam().tolerance);
}

TEST_P(EveryPrecision, GivesTheSameBitsOnEveryIsaAlone) {
  const LayerConfig config = ConfigOf(GetParam());
  auto ops = MakeCpuOps(2, GetParam().activations);
  const Trace want = LayerHarness(config, ops.get()).Run({{{0, 40}, {1, 9}}, {{0, 1}, {1, 1}}});
  for (Isa isa : SupportedIsas()) {
    auto other = MakeCpuOps(1, GetParam().activations, isa);
    ExpectSameBits(LayerHarness(config, other.get()).Run({{{1, 9}}, {{0, 20}}, {{0, 20}, {1, 1}}, {{0, 1}}}), want);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, EveryPrecision,
    testing::Values(Precision{"f16_weights", TensorType::kF16, ActivationType::kInt16, KvDType::kF32, 1e-5},
                    Precision{"f16_cache", TensorType::kF32, ActivationType::kInt16, KvDType::kF16, 5e-4},
                    Precision{"bf16_cache", TensorType::kBF16, ActivationType::kInt16, KvDType::kBF16, 4e-3},
                    Precision{"q4_1_int16", TensorType::kQ4_1, ActivationType::kInt16, KvDType::kF16, 2e-3},
                    Precision{"q4_1_int8", TensorType::kQ4_1, ActivationType::kInt8, KvDType::kF16, 6e-2},
                    Precision{"q4_1_f32", TensorType::kQ4_1, ActivationType::kF32, KvDType::kF32, 1e-5},
                    Precision{"q8_0_int16", TensorType::kQ8_0, ActivationType::kInt16, KvDType::kF32, 8e-4},
                    Precision{"q5_0_int16", TensorType::kQ5_0, ActivationType::kInt16, KvDType::kF32, 8e-4},
                    Precision{"q4_k_int16", TensorType::kQ4_K, ActivationType::kInt16, KvDType::kF16, 2e-3},
                    Precision{"q6_k_int16", TensorType::kQ6_K, ActivationType::kInt16, KvDType::kF16, 2e-3}),
    [](const auto& info) { return info.param.name; });

// Decoding few rows shares out the splits of a sequence; a batch does not.
TEST(CpuAttention, LongContextsGiveTheSameBitsHoweverTheWorkIsShared) {
  for (const AttentionMask mask : {AttentionMask{}, AttentionMask{MaskKind::kWindow, 400}}) {
    LayerConfig config;
    config.mask = mask;
    config.kv = KvDType::kF16;
    auto one = MakeCpuOps(1), three = MakeCpuOps(3);
    Schedule alone = {{{0, 1023}}, {{0, 1}}, {{0, 1}}, {{0, 2}}};
    const Trace want = LayerHarness(config, one.get()).Run(alone);
    ExpectSameBits(LayerHarness(config, three.get()).Run(alone), want);
    Schedule crowd = {{{0, 500}}, {{0, 526}, {1, 3}}};
    for (int i = 0; i < 1; ++i) crowd.push_back({{0, 1}, {1, 1}, {2, 1}, {3, 1}, {4, 1}, {5, 1}, {6, 1}, {7, 1}});
    Trace got = LayerHarness(config, three.get()).Run(crowd);
    std::erase_if(got, [](const auto& entry) { return entry.first.first != 0; });
    ExpectSameBits(got, want);
  }
}

TEST(CpuAttention, LongContextsAgreeWithTheReference) {
  LayerConfig config;
  config.kv = KvDType::kF16;
  auto reference = NewReferenceOps();
  auto cpu = MakeCpuOps(2);
  const Schedule schedule = {{{0, 1030}}, {{0, 1}}, {{0, 1}}};
  ExpectClose(LayerHarness(config, cpu.get()).Run(schedule), LayerHarness(config, reference.get()).Run(schedule), 5e-4);
}

// Blocks that no later query can reach are given away and written by others.
TEST(CpuAttention, NoBlockThatIsGoneIsRead) {
  for (const AttentionMask& mask : ForgetfulMasks()) {
    for (const auto& [block_size, kv] : {std::pair(16, KvDType::kF16), {32, KvDType::kF32}, {96, KvDType::kBF16}}) {
      SCOPED_TRACE(testing::Message() << int(mask.kind) << " " << mask.size << " in blocks of " << block_size);
      LayerConfig config;
      config.mask = mask, config.block_size = block_size, config.kv = kv;
      for (auto& ops : {MakeCpuOps(2), NewReferenceOps()}) {
        LayerHarness whole(config, ops.get()), forgetful(config, ops.get());
        ExpectSameBits(RunForgetting<Trace>(&forgetful, TwoInTurns(), mask),
                       RunForgetting<Trace>(&whole, TwoInTurns(), AttentionMask{}));
      }
    }
  }
}

TEST(CpuKvCache, LayersOfOneStorageShareItsMemory) {
  KvCacheShape shape{{{2, 32, 32, 0}, {2, 32, 32, 1}, {2, 32, 32, 0}, {1, 16, 0}, {1, 16, 0}}, 4, 16, KvDType::kF16};
  EXPECT_EQ(shape.bytes(), (2 * 2 * 64 + 2 * 16) * 4 * 16 * 2);
  EXPECT_EQ(shape.StorageOwner(1), 1u);
  EXPECT_EQ(shape.StorageOwner(2), 0u);
  EXPECT_EQ(shape.StorageOwner(4), 4u) << "-1 is shared with nobody";
  auto ops = MakeCpuOps();
  const std::unique_ptr<KvCache> made = ops->NewKvCache(shape).value();
  const auto& kv = static_cast<const CpuKvCache&>(*made);
  EXPECT_EQ(kv.page(2, 3, 1, 0), kv.page(0, 3, 1, 0));
  EXPECT_NE(kv.page(1, 3, 1, 0), kv.page(0, 3, 1, 0));
  EXPECT_NE(kv.page(4, 0, 0, 0), kv.page(3, 0, 0, 0));
  shape.layers[3].storage = 1;
  EXPECT_THAT(std::string(ops->NewKvCache(shape).status().message()), testing::HasSubstr("layers 1 and 3"));
}

TEST(CpuOps, RefusesWhatItCannotHold) {
  auto ops = MakeCpuOps();
  KvCacheShape shape{{{1, 32, 32}}, 4, 16, KvDType::kF8E4M3};
  EXPECT_EQ(ops->NewKvCache(shape).status().code(), absl::StatusCode::kInvalidArgument);
  shape.dtype = KvDType::kF16;
  shape.block_size = 24;
  EXPECT_THAT(std::string(ops->NewKvCache(shape).status().message()), testing::HasSubstr("24"));
  EXPECT_EQ(NewCpuOps({-1, {}, ActivationType::kInt16}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(CpuOps, TwoOfThemDoNotDisturbEachOther) {
  LayerConfig config;
  auto a = MakeCpuOps(2), b = MakeCpuOps(3);
  LayerHarness first(config, a.get()), second(config, b.get());
  Trace x, y;
  for (int i = 0; i < 20; ++i) {
    first.RunStep({{0, 1}, {1, 2}}, &x);
    second.RunStep({{0, 1}, {1, 2}}, &y);
  }
  ExpectSameBits(x, y);
}

}  // namespace
}  // namespace sluice
