// CudaOps on the emulated GPU against the reference: in f32 every kind of layer agrees to rounding errors, in bf16 to
// its own; and nothing but a row's own sequence changes a bit.
#include "engine/ops/cuda/cuda_ops.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "engine/ops/reference/reference_ops.h"
#include "tests/cuda/test_device.h"
#include "tests/ops/layer_harness.h"
#include "tests/ops/mla_harness.h"
#include "tests/ops/moe_harness.h"

namespace sluice {
namespace {

using cuda::Element;

std::unique_ptr<Ops> MakeCudaOps(Element element, int32_t mla_pass_tokens = MlaExpansion::kPassTokens) {
  CudaOpsOptions options;
  options.activations = element;
  options.mla_pass_tokens = mla_pass_tokens;
  return NewCudaOps(cuda_testing::NewTestDevice().value(), options).value();
}

bool Multiples(std::initializer_list<int> sizes) {
  return std::all_of(sizes.begin(), sizes.end(), [](int size) { return size % 8 == 0; });
}
bool Runs(const LayerConfig& c) {
  return Multiples(
      {c.d_model, c.hidden, c.heads.head_dim, c.heads.value_head_dim, c.heads.num_heads * c.heads.value_head_dim});
}
bool Runs(const MoeConfig& c) { return Multiples({c.d_model, c.hidden, c.shared_hidden}); }
bool Runs(const MlaConfig& c) {
  const Mla& h = c.heads;
  return Multiples(
      {c.d_model, h.q_lora_rank.value_or(0), h.kv_lora_rank, h.qk_nope_head_dim, h.qk_rope_head_dim, h.v_head_dim});
}

// All of them, or those that the GPU takes.
template <class Config>
std::vector<Config> Runnable(std::vector<Config> configs) {
  std::erase_if(configs, [](const Config& config) { return !Runs(config); });
  return configs;
}

template <class Row>
using Member = std::vector<float> Row::*;

template <class Row>
double WorstError(const std::map<std::pair<int, int>, Row>& got, const std::map<std::pair<int, int>, Row>& want,
                  Member<Row> member) {
  EXPECT_EQ(got.size(), want.size());
  double worst = 0;
  for (const auto& [key, row] : want) worst = std::max(worst, RelativeError(got.at(key).*member, row.*member));
  return worst;
}

template <class Row>
void ExpectSameBits(const std::map<std::pair<int, int>, Row>& got, const std::map<std::pair<int, int>, Row>& want,
                    Member<Row> member) {
  for (const auto& [key, row] : want) {
    const auto found = got.find(key);
    if (found == got.end()) continue;
    const std::vector<float>&a = found->second.*member, &b = row.*member;
    ASSERT_EQ(a.size(), b.size());
    ASSERT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0)
        << "sequence " << key.first << " position " << key.second;
  }
}

Schedule ShortSchedule() { return {{{0, 33}, {1, 1}}, {{1, 18}, {0, 1}, {2, 70}}, {{0, 1}, {1, 1}, {2, 1}}}; }
Schedule InPieces() {
  return {{{0, 16}}, {{2, 7}, {0, 17}}, {{1, 1}, {0, 1}, {2, 63}}, {{1, 17}, {2, 1}}, {{1, 1}}, {{1, 1}, {0, 1}}};
}

class EveryLayer : public testing::TestWithParam<LayerConfig> {
 protected:
  void Expect(Element element, double tolerance) {
    auto reference = NewReferenceOps();
    auto ops = MakeCudaOps(element);
    const Trace want = LayerHarness(GetParam(), reference.get()).Run(ShortSchedule());
    LayerHarness harness(GetParam(), ops.get());
    const Trace got = harness.Run(ShortSchedule());
    EXPECT_LT(WorstError(got, want, &RowTrace::q), tolerance);
    EXPECT_LT(WorstError(got, want, &RowTrace::attention), tolerance);
    EXPECT_LT(WorstError(got, want, &RowTrace::after_attention), tolerance);
    EXPECT_LT(WorstError(got, want, &RowTrace::after_ffn), tolerance);
    EXPECT_LT(WorstError(got, want, &RowTrace::logits), tolerance);
    const Trace pieces = harness.Run(InPieces());
    for (const Member<RowTrace> member :
         {&RowTrace::q, &RowTrace::attention, &RowTrace::after_ffn, &RowTrace::logits}) {
      ExpectSameBits(pieces, got, member);
    }
  }
};

TEST_P(EveryLayer, AgreesWithTheReferenceInF32AndKeepsItsBits) { Expect(Element::kF32, 2e-5); }

TEST_P(EveryLayer, AgreesWithTheReferenceInBf16AndKeepsItsBits) { Expect(Element::kBF16, 5e-2); }

INSTANTIATE_TEST_SUITE_P(All, EveryLayer, testing::ValuesIn(Runnable(LayerConfigs())),
                         [](const auto& info) { return info.param.name; });

class EveryMla : public testing::TestWithParam<MlaConfig> {
 protected:
  void Expect(Element element, double tolerance) {
    auto reference = NewReferenceOps();
    auto ops = MakeCudaOps(element);
    const MlaTrace want = MlaHarness(GetParam(), reference.get()).Run(ShortSchedule());
    MlaHarness harness(GetParam(), ops.get());
    const MlaTrace got = harness.Run(ShortSchedule());
    EXPECT_LT(WorstError(got, want, &MlaRowTrace::q), tolerance);
    EXPECT_LT(WorstError(got, want, &MlaRowTrace::out), tolerance);
    ExpectSameBits(harness.Run(InPieces()), got, &MlaRowTrace::out);
    // Several passes a step, and of many heads some at a time.
    auto in_passes = MakeCudaOps(element, 64);
    ExpectSameBits(MlaHarness(GetParam(), in_passes.get()).Run(ShortSchedule()), got, &MlaRowTrace::out);
  }
};

TEST_P(EveryMla, AgreesWithTheReferenceInF32AndKeepsItsBits) { Expect(Element::kF32, 2e-5); }

TEST_P(EveryMla, AgreesWithTheReferenceInBf16AndKeepsItsBits) { Expect(Element::kBF16, 5e-2); }

INSTANTIATE_TEST_SUITE_P(All, EveryMla, testing::ValuesIn(Runnable(MlaConfigs())),
                         [](const auto& info) { return info.param.name; });

class EveryMoe : public testing::TestWithParam<MoeConfig> {
 protected:
  void Expect(Element element, double tolerance) {
    auto reference = NewReferenceOps();
    auto ops = MakeCudaOps(element);
    const std::vector<int32_t> tokens{5, 6, 7, 5, 99, 300, 301, 302, 303, 5, 11};
    const auto want = MoeHarness(GetParam(), reference.get()).Run(tokens);
    MoeHarness harness(GetParam(), ops.get());
    const auto got = harness.Run(tokens);
    for (size_t row = 0; row < tokens.size(); ++row) {
      EXPECT_LT(RelativeError(got[row], want[row]), tolerance) << row;
      EXPECT_EQ(harness.Run({tokens[row]})[0], got[row]) << row;
    }
  }
};

TEST_P(EveryMoe, AgreesWithTheReferenceInF32AndKeepsItsBits) { Expect(Element::kF32, 2e-5); }

TEST_P(EveryMoe, AgreesWithTheReferenceInBf16AndKeepsItsBits) { Expect(Element::kBF16, 3e-2); }

INSTANTIATE_TEST_SUITE_P(All, EveryMoe, testing::ValuesIn(Runnable(MoeConfigs())),
                         [](const auto& info) { return info.param.name; });

TEST(CudaOps, RefusesWhatTheKernelsDoNotTake) {
  auto ops = MakeCudaOps(Element::kBF16);
  std::mt19937 rng(1);
  const StoredTensor odd = RandomTensor(TensorType::kF32, 16, 50, rng);
  const auto linear = ops->LoadLinear({{odd.view}}, LinearLayout::kStacked);
  EXPECT_EQ(linear.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(linear.status().message(), testing::HasSubstr("50 input features"));
  KvCacheShape shape;
  shape.layers = {{1, 20, 12}};
  shape.num_blocks = 1;
  EXPECT_EQ(ops->NewKvCache(shape).status().code(), absl::StatusCode::kUnimplemented);
}

TEST(CudaOps, SaysWhatMemoryItLacks) {
  auto ops = NewCudaOps(cuda_testing::NewTestDevice().value(), {}).value();
  KvCacheShape shape;
  shape.layers = {{1, 64, 64}};
  shape.num_blocks = 1 << 30;  // no device has 4 TiB
  const auto cache = ops->NewKvCache(shape);
  EXPECT_EQ(cache.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(cache.status().message(),
              testing::AllOf(testing::HasSubstr("4398046511104 bytes"), testing::HasSubstr(" are free")));
}

}  // namespace
}  // namespace sluice
