// Latent attention on the CPU against the reference, its two forms against each other, and both against themselves:
// nothing but a row's own sequence and position may change a bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "engine/base/cpu_info.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "engine/ops/reference/reference_ops.h"
#include "tests/ops/gone_blocks.h"
#include "tests/ops/layer_harness.h"
#include "tests/ops/mla_harness.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<Ops> MakeCpuOps(int num_threads = 2, ActivationType activations = ActivationType::kF32,
                                std::optional<Isa> isa = {}) {
  return NewCpuOps({num_threads, isa, activations}).value();
}

MlaTrace RunOn(Ops& ops, const MlaConfig& config, const Schedule& schedule) {
  return MlaHarness(config, &ops).Run(schedule);
}

void ExpectClose(const MlaTrace& got, const MlaTrace& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  double q = 0, out = 0;
  for (const auto& [key, reference] : want) {
    q = std::max(q, RelativeError(got.at(key).q, reference.q));
    out = std::max(out, RelativeError(got.at(key).out, reference.out));
  }
  EXPECT_LT(q, tolerance);
  EXPECT_LT(out, tolerance);
}

// Of the sequences in `want`.
void ExpectSameBits(const MlaTrace& got, const MlaTrace& want) {
  const auto same = [](const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
  };
  for (const auto& [key, reference] : want) {
    ASSERT_TRUE(got.contains(key)) << key.first << " " << key.second;
    ASSERT_TRUE(same(got.at(key).q, reference.q)) << "q of sequence " << key.first << " position " << key.second;
    ASSERT_TRUE(same(got.at(key).out, reference.out)) << key.first << " " << key.second;
  }
}

class EveryMla : public testing::TestWithParam<MlaConfig> {};

TEST_P(EveryMla, AgreesWithTheReferenceInF32) {
  auto reference = NewReferenceOps();
  auto cpu = MakeCpuOps();
  const MlaTrace want = RunOn(*reference, GetParam(), RaggedSchedule());
  ExpectClose(RunOn(*cpu, GetParam(), RaggedSchedule()), want, 1e-5);
}

TEST_P(EveryMla, GivesTheSameBitsHoweverComputed) {
  auto ops = MakeCpuOps(1);
  const MlaTrace want = RunOn(*ops, GetParam(), {{{0, 300}}});
  Schedule one_by_one, mixed, last_one_by_one = {{{0, 290}}};
  for (int i = 0; i < 300; ++i) one_by_one.push_back({{0, 1}});
  for (int i = 290; i < 300; ++i) last_one_by_one.push_back({{0, 1}});
  for (int i = 0; i < 300; i += 23)
    mixed.push_back({{5, i < 100 ? 3 : 1}, {0, std::min(23, 300 - i)}, {6, i == 0 ? 270 : 1}});
  ExpectSameBits(RunOn(*ops, GetParam(), one_by_one), want);
  ExpectSameBits(RunOn(*ops, GetParam(), mixed), want);
  auto more = MakeCpuOps(3);
  ExpectSameBits(RunOn(*more, GetParam(), {{{0, 300}}}), want);
  ExpectSameBits(RunOn(*more, GetParam(), mixed), want);
  ExpectSameBits(RunOn(*more, GetParam(), last_one_by_one), want);
  for (Isa isa : SupportedIsas()) {
    auto other = MakeCpuOps(2, ActivationType::kF32, isa);
    ExpectSameBits(RunOn(*other, GetParam(), {{{1, 3}, {0, 290}}, {{0, 9}}, {{0, 1}, {1, 1}}}), want);
  }
}

INSTANTIATE_TEST_SUITE_P(All, EveryMla, testing::ValuesIn(MlaConfigs()),
                         [](const auto& info) { return info.param.name; });

struct MlaPrecision {
  std::string name;
  TensorType weights;
  ActivationType activations;
  KvDType kv;
  double tolerance;
  float score_scale = 0.5f;  // random weights of some types are large: one key would take all
};

class EveryMlaPrecision : public testing::TestWithParam<MlaPrecision> {};

// The widths that blocks of 256 need.
MlaConfig ConfigOf(const MlaPrecision& p, int32_t expand_from) {
  MlaConfig config;
  config.d_model = 256;
  config.heads = {4, 256, 256, 48, 16, 40}, config.num_rotary = 16;
  config.weights = p.weights, config.kv = p.kv;
  config.expand_from = expand_from, config.prompt_len = 1000;
  config.score_scale = p.score_scale;
  return config;
}

TEST_P(EveryMlaPrecision, AgreesWithTheReferenceInBothForms) {
  const Schedule schedule = {{{0, 15}, {1, 1}, {2, 70}}, {{0, 3}, {1, 1}, {2, 1}}};
  for (const int32_t expand_from : {INT32_MAX, 1}) {
    const MlaConfig config = ConfigOf(GetParam(), expand_from);
    auto reference = NewReferenceOps();
    auto cpu = MakeCpuOps(2, GetParam().activations);
    ExpectClose(RunOn(*cpu, config, schedule), RunOn(*reference, config, schedule), GetParam().tolerance);
  }
}

TEST_P(EveryMlaPrecision, GivesTheSameBitsOnEveryIsaAlone) {
  for (const int32_t expand_from : {INT32_MAX, 1}) {
    const MlaConfig config = ConfigOf(GetParam(), expand_from);
    auto ops = MakeCpuOps(2, GetParam().activations);
    const MlaTrace want = RunOn(*ops, config, {{{0, 18}, {1, 5}}, {{0, 1}, {1, 1}}});
    for (Isa isa : SupportedIsas()) {
      auto other = MakeCpuOps(1, GetParam().activations, isa);
      ExpectSameBits(RunOn(*other, config, {{{1, 5}}, {{0, 9}}, {{0, 9}, {1, 1}}, {{0, 1}}}), want);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, EveryMlaPrecision,
    testing::Values(MlaPrecision{"f16_weights", TensorType::kF16, ActivationType::kInt16, KvDType::kF32, 1e-5},
                    MlaPrecision{"f8_weights", TensorType::kF8E4M3, ActivationType::kInt16, KvDType::kF32, 1e-5},
                    MlaPrecision{"f16_cache", TensorType::kF32, ActivationType::kInt16, KvDType::kF16, 1e-3},
                    MlaPrecision{"bf16_cache", TensorType::kBF16, ActivationType::kInt16, KvDType::kBF16, 8e-3},
                    MlaPrecision{"q8_0_f32", TensorType::kQ8_0, ActivationType::kF32, KvDType::kF32, 1e-5},
                    MlaPrecision{"q8_0_int16", TensorType::kQ8_0, ActivationType::kInt16, KvDType::kF32, 1e-3},
                    MlaPrecision{"q8_0_int8", TensorType::kQ8_0, ActivationType::kInt8, KvDType::kF32, 6e-2},
                    MlaPrecision{"q4_1_int16", TensorType::kQ4_1, ActivationType::kInt16, KvDType::kF16, 4e-3},
                    MlaPrecision{"q4_k_int16", TensorType::kQ4_K, ActivationType::kInt16, KvDType::kF16, 4e-3},
                    MlaPrecision{"q6_k_int16", TensorType::kQ6_K, ActivationType::kInt16, KvDType::kF16, 4e-3, 0.02f}),
    [](const auto& info) { return info.param.name; });

// The values' matrix quantised and the keys' not, and the other way round.
TEST(MlaTest, KeyAndValueMatricesMayDifferInType) {
  for (const auto& [key, value] :
       {std::pair(TensorType::kF16, TensorType::kQ8_0), std::pair(TensorType::kQ8_0, TensorType::kBF16)}) {
    for (const int32_t expand_from : {INT32_MAX, 1}) {
      MlaConfig config;
      config.weights = key, config.value_up = value, config.expand_from = expand_from, config.prompt_len = 1000;
      auto reference = NewReferenceOps();
      auto cpu = MakeCpuOps(2, ActivationType::kInt16);
      const Schedule schedule = {{{0, 70}, {1, 2}}, {{0, 1}}};
      ExpectClose(RunOn(*cpu, config, schedule), RunOn(*reference, config, schedule), 2e-3);
    }
  }
}

// The forms are the same sum: on the reference, and on the CPU for every type of the cache.
TEST(MlaTest, ExpandedAgreesWithAbsorbed) {
  const Schedule schedule = {{{0, 90}, {1, 33}, {2, 300}}, {{0, 1}, {1, 1}, {2, 1}}};
  for (const bool q_lora : {false, true}) {
    for (const KvDType kv : {KvDType::kF32, KvDType::kF16, KvDType::kBF16}) {
      MlaConfig absorbed;
      absorbed.kv = kv, absorbed.heads.q_lora_rank = q_lora ? std::optional(24) : std::nullopt;
      MlaConfig expanded = absorbed;
      expanded.expand_from = 1, expanded.prompt_len = 1000;
      auto reference = NewReferenceOps();
      auto cpu = MakeCpuOps();
      ExpectClose(RunOn(*reference, expanded, schedule), RunOn(*reference, absorbed, schedule), 1e-6);
      ExpectClose(RunOn(*cpu, expanded, schedule), RunOn(*cpu, absorbed, schedule), 1e-5);
    }
  }
}

// Real proportions, where lanes and panels are full: DeepSeek-V2-Lite, and the heads of DeepSeek-V3.
TEST(MlaTest, RealHeadSizesAgreeWithTheReference) {
  for (const Mla& heads : {Mla{16, std::nullopt, 512, 128, 64, 128}, Mla{128, 96, 512, 128, 64, 128}}) {
    MlaConfig config;
    config.heads = heads, config.num_rotary = 64, config.kv = KvDType::kF32, config.score_scale = 2;
    config.prompt_len = 6, config.expand_from = 6;
    auto reference = NewReferenceOps();
    auto cpu = MakeCpuOps();
    const Schedule schedule = {{{0, 6}, {1, 2}}, {{0, 1}, {1, 1}}};
    ExpectClose(RunOn(*cpu, config, schedule), RunOn(*reference, config, schedule), 1e-5);
  }
}

// A row's form depends on its position, its sequence's prompt and the configuration; both forms read one cache.
TEST(MlaTest, EachRowTakesTheFormOfItsPosition) {
  MlaConfig config;
  config.prompt_len = 40;  // sequence 0: 40, 1: 90, 2: 140
  MlaConfig expanded = config;
  config.expand_from = 90;
  expanded.expand_from = 1, expanded.prompt_len = 1000;
  auto ops = MakeCpuOps();
  const Schedule schedule = {{{0, 60}, {1, 80}, {2, 200}}, {{0, 1}, {1, 30}, {2, 1}}};
  const MlaTrace mixed = RunOn(*ops, config, schedule), all_expanded = RunOn(*ops, expanded, schedule);
  config.expand_from = INT32_MAX;
  const MlaTrace all_absorbed = RunOn(*ops, config, schedule);
  int num_expanded = 0, num_distinct = 0;
  for (const auto& [key, row] : mixed) {
    const auto [sequence, position] = key;
    const bool expands = (sequence == 1 && position < 90) || (sequence == 2 && position < 140);
    num_expanded += expands;
    num_distinct += all_expanded.at(key).out != all_absorbed.at(key).out;
    ASSERT_EQ(row.out, (expands ? all_expanded : all_absorbed).at(key).out) << sequence << " " << position;
  }
  EXPECT_EQ(num_expanded, 90 + 140);
  EXPECT_GT(num_distinct, 300);  // otherwise this test says nothing
}

// A seeded mistake in the scale moves the results: the tolerances above mean something.
TEST(MlaTest, TheSoftmaxIsNotFlat) {
  MlaConfig config, other;
  other.score_scale *= 1.001f;
  auto ops = MakeCpuOps();
  const Schedule schedule = {{{0, 100}}};
  const MlaTrace a = RunOn(*ops, config, schedule), b = RunOn(*ops, other, schedule);
  double worst = 0;
  for (const auto& [key, row] : a) worst = std::max(worst, RelativeError(b.at(key).out, row.out));
  EXPECT_GT(worst, 1e-4);
}

// Decoding few rows shares out the splits of a sequence; a batch does not.
TEST(MlaTest, LongContextsGiveTheSameBitsHoweverTheWorkIsShared) {
  for (const int32_t expand_from : {INT32_MAX, 1}) {
    MlaConfig config;
    config.kv = KvDType::kF16, config.expand_from = expand_from, config.prompt_len = 1025;
    auto one = MakeCpuOps(1), three = MakeCpuOps(3);
    const Schedule alone = {{{0, 1023}}, {{0, 1}}, {{0, 1}}, {{0, 2}}};
    const MlaTrace want = RunOn(*one, config, alone);
    ExpectSameBits(RunOn(*three, config, alone), want);
    Schedule crowd = {{{0, 500}}, {{0, 526}, {1, 3}}};
    crowd.push_back({{0, 1}, {1, 1}, {2, 1}, {3, 1}, {4, 1}, {5, 1}, {6, 1}, {7, 1}});
    ExpectSameBits(RunOn(*three, config, crowd), want);
    auto reference = NewReferenceOps();
    ExpectClose(want, RunOn(*reference, config, alone), 1e-3);
  }
}

// Blocks that no later query can reach are given away and written by others.
TEST(MlaTest, NoBlockThatIsGoneIsRead) {
  for (const AttentionMask& mask : ForgetfulMasks()) {
    for (const int32_t expand_from : {INT32_MAX, 1}) {
      for (const int block_size : {16, 32}) {
        SCOPED_TRACE(testing::Message() << int(mask.kind) << " " << mask.size << " in blocks of " << block_size
                                        << ", expanded from " << expand_from);
        MlaConfig config;
        config.mask = mask, config.block_size = block_size;
        config.expand_from = expand_from, config.prompt_len = 200;
        for (auto& ops : {MakeCpuOps(), NewReferenceOps()}) {
          MlaHarness whole(config, ops.get()), forgetful(config, ops.get());
          ExpectSameBits(RunForgetting<MlaTrace>(&forgetful, TwoInTurns(), mask),
                         RunForgetting<MlaTrace>(&whole, TwoInTurns(), AttentionMask{}));
        }
      }
    }
  }
}

// The error names the tensor and what was expected of it.
TEST(MlaTest, RefusesMatricesThatDoNotFitTheHeads) {
  std::mt19937 rng(1);
  const Mla heads{2, std::nullopt, 32, 4, 8, 6};
  for (const bool on_cpu : {false, true}) {
    std::unique_ptr<Ops> ops = on_cpu ? MakeCpuOps() : NewReferenceOps();
    const auto load = [&](std::vector<int64_t> key_shape, std::vector<int64_t> value_shape,
                          TensorType type = TensorType::kF32, Mla shape = {2, std::nullopt, 32, 4, 8, 6}) {
      StoredTensor key = RandomTensor(TensorType::kF32, key_shape[0] * key_shape[1], key_shape[2], rng);
      StoredTensor value = RandomTensor(TensorType::kF32, value_shape[0] * value_shape[1], value_shape[2], rng);
      key.view.shape = key_shape, value.view.shape = value_shape;
      key.view.type = type;
      key.view.name = "the key half", value.view.name = "the value half";
      return ops->LoadMlaUp(key.view, value.view, shape).status();
    };
    EXPECT_TRUE(load({2, 4, 32}, {2, 6, 32}).ok());
    EXPECT_THAT(std::string(load({2, 5, 32}, {2, 6, 32}).message()), HasSubstr("the key half' [2, 5, 32]"));
    EXPECT_THAT(std::string(load({2, 4, 32}, {2, 6, 64}).message()), HasSubstr("the value half' [2, 6, 64]"));
    EXPECT_THAT(std::string(load({2, 4, 32}, {2, 6, 32}, TensorType::kQ4_K).message()), HasSubstr("multiple of 256"));
    EXPECT_THAT(std::string(load({2, 4, 32}, {2, 6, 32}, TensorType::kF32, {2, std::nullopt, 32, 4, 0, 6}).message()),
                HasSubstr("qk_rope_head_dim 0"));
    StoredTensor key = RandomTensor(TensorType::kF32, 8, 32, rng), value = RandomTensor(TensorType::kF32, 12, 32, rng);
    key.view.shape = {2, 4, 32}, value.view.shape = {2, 6, 32};
    value.view.data.remove_suffix(4);
    EXPECT_THAT(std::string(ops->LoadMlaUp(key.view, value.view, heads).status().message()), HasSubstr("1532 bytes"));
  }
}

}  // namespace
}  // namespace sluice
