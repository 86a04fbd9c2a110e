// QK-norm, RoPE, temperature and the cache write against their definitions in double precision.
#include "engine/ops/cuda/kernels/qkv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cuda/qkv_harness.h"

namespace sluice::cuda_testing {
namespace {

using cuda::Element;
using cuda::KvElement;
using testing::NanSensitiveFloatEq;
using testing::Pointwise;

struct QkvSetup {
  const char* name;
  int heads = 4, kv_heads = 2, head_dim = 64, value_dim = 64;
  QkNormKind norm = QkNormKind::kNone;
  NormParams params = {};
  bool norm_after_rope = false;
  RopeLayout layout = RopeLayout::kHalfSplit;
  int num_rotary = 64;
  bool temperature = false;
};

const QkvSetup kSetups[] = {
    {.name = "llama"},
    {.name = "qwen3", .head_dim = 128, .value_dim = 128, .norm = QkNormKind::kPerHead, .num_rotary = 128},
    {.name = "gemma",
     .heads = 2,
     .kv_heads = 1,
     .head_dim = 256,
     .value_dim = 256,
     .norm = QkNormKind::kPerHead,
     .params = {NormKind::kRms, 1e-6f, 1},
     .num_rotary = 256},
    {.name = "llama4",
     .norm = QkNormKind::kL2PerHead,
     .norm_after_rope = true,
     .layout = RopeLayout::kInterleaved,
     .temperature = true},
    {.name = "olmo2", .norm = QkNormKind::kFullWidth},
    {.name = "full width after",
     .heads = 6,
     .kv_heads = 3,
     .head_dim = 40,
     .value_dim = 24,
     .norm = QkNormKind::kFullWidth,
     .params = {NormKind::kLayer, 1e-5f, 0},
     .norm_after_rope = true,
     .layout = RopeLayout::kInterleaved,
     .num_rotary = 16,
     .temperature = true},
    {.name = "cohere",
     .head_dim = 128,
     .value_dim = 128,
     .norm = QkNormKind::kPerHead,
     .params = {NormKind::kLayer, 1e-5f, 0},
     .layout = RopeLayout::kInterleaved,
     .num_rotary = 128},
    {.name = "partial", .heads = 3, .kv_heads = 3, .head_dim = 80, .value_dim = 72, .num_rotary = 32},
    {.name = "nope", .heads = 5, .kv_heads = 5, .head_dim = 8, .value_dim = 8, .num_rotary = 0, .temperature = true},
    {.name = "wide",
     .heads = 2,
     .kv_heads = 1,
     .head_dim = 512,
     .value_dim = 16,
     .norm = QkNormKind::kPerHead,
     .num_rotary = 512},
    {.name = "wide full width",
     .heads = 2,
     .kv_heads = 1,
     .head_dim = 512,
     .value_dim = 16,
     .norm = QkNormKind::kFullWidth,
     .num_rotary = 512},
};

constexpr float kFloor = 8, kCoef = 0.1f;
constexpr int kBlockSize = 8, kBlocks = 5;

const std::vector<StepRow> kRows = {{0, 0, 0},     {0, 7, 39},   {1, 100, 9}, {-1, 12345, -1},
                                    {2, 99999, 8}, {1, 101, 10}, {-1, -7, -1}};
const std::vector<int32_t> kRopeLengths = {10, 200, 100000};

struct Result {
  std::vector<float> q, cache;
};

class Layer {
 public:
  Layer(const QkvSetup& setup, const RopeTable& table)
      : setup_(setup),
        table_(table),
        q_weight_(Normal(size_t(WeightSize(setup.heads)), 11)),
        k_weight_(Normal(size_t(WeightSize(setup.kv_heads)), 12)) {}

  size_t width() const { return size_t((setup_.heads + setup_.kv_heads) * setup_.head_dim + values()); }

  Result Run(const std::vector<StepRow>& rows, const std::vector<float>& qkv, Element q_element,
             KvElement kv_element) const {
    const QkvSetup& s = setup_;
    const DeviceStep step(rows, kRopeLengths);
    const DeviceRope rope(table_, s.layout);
    const CacheLayer cache(kv_element, kBlockSize, s.kv_heads, s.head_dim, s.value_dim, kBlocks);
    DeviceArray<float> device_qkv(qkv), q_weight(q_weight_), k_weight(k_weight_);
    ElementArray q(q_element, rows.size() * size_t(s.heads * s.head_dim));
    cuda::LaunchQkvPost({.step = step.step,
                         .group = step.group,
                         .qkv = device_qkv.data(),
                         .num_heads = s.heads,
                         .qk_norm = s.norm,
                         .norm_after_rope = s.norm_after_rope,
                         .q_norm = {s.params, q_weight.data()},
                         .k_norm = {s.params, k_weight.data()},
                         .rope = rope.view,
                         .has_temperature = s.temperature,
                         .temperature_floor = kFloor,
                         .temperature_coef = kCoef,
                         .kv = cache.kv,
                         .q = q.data(),
                         .q_element = q_element},
                        nullptr);
    return {q.Read(), cache.Values()};
  }

  // By definition; NaN where nothing is to be written.
  std::pair<std::vector<double>, std::vector<double>> Want(const std::vector<StepRow>& rows,
                                                           const std::vector<float>& qkv) const {
    const QkvSetup& s = setup_;
    const CacheLayer cache(KvElement::kF32, kBlockSize, s.kv_heads, s.head_dim, s.value_dim, kBlocks);
    std::vector<double> q(rows.size() * size_t(s.heads * s.head_dim), NAN), kv(cache.Values().size(), NAN);
    for (size_t r = 0; r < rows.size(); ++r) {
      if (rows[r].sequence < 0) continue;
      std::vector<double> x(qkv.begin() + ptrdiff_t(r * width()), qkv.begin() + ptrdiff_t((r + 1) * width()));
      double* k = &x[size_t(s.heads * s.head_dim)];
      const auto norm = [&] {
        Norm(q_weight_, s.heads, x.data());
        Norm(k_weight_, s.kv_heads, k);
      };
      if (!s.norm_after_rope) norm();
      for (int h = 0; h < s.heads + s.kv_heads; ++h) {
        Rotate(table_, s.layout, rows[r].position, kRopeLengths[size_t(rows[r].sequence)], &x[size_t(h * s.head_dim)]);
      }
      if (s.norm_after_rope) norm();
      const double t =
          s.temperature ? 1 + double(kCoef) * std::log(1 + std::floor((rows[r].position + 1) / double(kFloor))) : 1;
      for (int i = 0; i < s.heads * s.head_dim; ++i) q[r * size_t(s.heads * s.head_dim) + size_t(i)] = x[size_t(i)] * t;
      const double* v = k + s.kv_heads * s.head_dim;
      for (int h = 0; h < s.kv_heads; ++h) {
        std::copy_n(k + h * s.head_dim, s.head_dim, &kv[cache.KeyAt(rows[r].slot, h)]);
        std::copy_n(v + h * s.value_dim, s.value_dim, &kv[cache.ValueAt(rows[r].slot, h)]);
      }
    }
    return {q, kv};
  }

 private:
  int values() const { return setup_.kv_heads * setup_.value_dim; }
  int WeightSize(int heads) const { return setup_.head_dim * (setup_.norm == QkNormKind::kFullWidth ? heads : 1); }
  void Norm(const std::vector<float>& weight, int heads, double* x) const {
    if (setup_.norm == QkNormKind::kNone) return;
    if (setup_.norm == QkNormKind::kFullWidth) {
      return Normalise(setup_.params, weight.data(), x, heads * setup_.head_dim);
    }
    const float* w = setup_.norm == QkNormKind::kPerHead ? weight.data() : nullptr;
    for (int h = 0; h < heads; ++h) Normalise(setup_.params, w, x + h * setup_.head_dim, setup_.head_dim);
  }

  const QkvSetup setup_;
  const RopeTable table_;
  const std::vector<float> q_weight_, k_weight_;
};

void ExpectAgrees(const Layer& layer, const std::vector<StepRow>& rows) {
  const std::vector<float> qkv = Normal(rows.size() * layer.width(), 5, 2);
  const Result got = layer.Run(rows, qkv, Element::kF32, KvElement::kF32);
  const auto [q, cache] = layer.Want(rows, qkv);
  for (size_t i = 0; i < q.size(); ++i) ASSERT_EQ(std::isnan(got.q[i]), std::isnan(q[i])) << i;
  for (size_t i = 0; i < cache.size(); ++i) ASSERT_EQ(std::isnan(got.cache[i]), std::isnan(cache[i])) << i;
  EXPECT_LE(RelativeError(got.q, q), 2e-6);
  EXPECT_LE(RelativeError(got.cache, cache), 2e-6);
}

TEST(QkvPost, AgreesWithItsDefinition) {
  for (const QkvSetup& setup : kSetups) {
    SCOPED_TRACE(setup.name);
    ExpectAgrees(Layer(setup, MakeRopeTable(setup.num_rotary)), kRows);
  }
}

TEST(QkvPost, FollowsTheRulesForLongSequences) {
  RopeTable longrope = MakeRopeTable(64), ntk = MakeRopeTable(64);
  longrope.attention_factor = 1.19f;
  LongRopeRule rule = {150, longrope.inv_freq};
  for (size_t i = 0; i < rule.long_inv_freq.size(); ++i) rule.long_inv_freq[i] /= 1 + float(i) / 8;
  longrope.length_rule = rule;
  ntk.length_rule = DynamicNtkRule{1e4f, 4, 150};
  for (const RopeTable& table : {longrope, ntk}) {
    ExpectAgrees(Layer(kSetups[0], table), kRows);
    ExpectAgrees(Layer(kSetups[4], table), kRows);
  }
}

TEST(QkvPost, AnglesAreRightAtAnyPosition) {
  std::vector<StepRow> rows;
  for (int32_t position : {1, 2, 1000, 131071, 1048575, 8388607, 16777215}) {
    rows.push_back({0, position, int32_t(rows.size())});
  }
  ExpectAgrees(Layer(kSetups[0], MakeRopeTable(64)), rows);
  ExpectAgrees(Layer(kSetups[0], MakeRopeTable(64, 1e6f)), rows);
}

TEST(QkvPost, RoundsOnceToTheTypesAskedFor) {
  for (const QkvSetup& setup : {kSetups[0], kSetups[4]}) {
    const Layer layer(setup, MakeRopeTable(64));
    std::vector<float> qkv = Normal(kRows.size() * layer.width(), 5, 2);
    if (setup.norm == QkNormKind::kNone) {
      for (size_t i = 0; i < qkv.size(); i += 5) qkv[i] *= 300;  // beyond what f8 holds
      qkv[layer.width() - 1] = 1e9f;                             // beyond f16
    }
    const Result exact = layer.Run(kRows, qkv, Element::kF32, KvElement::kF32);
    for (KvElement element : {KvElement::kF16, KvElement::kBF16, KvElement::kF8E4M3}) {
      const Result got = layer.Run(kRows, qkv, Element::kBF16, element);
      std::vector<float> q = exact.q, cache = exact.cache;
      for (float& v : q) v = Bf16ToFloat(FloatToBf16(v));
      for (float& v : cache) v = RoundTo(element, v);
      EXPECT_THAT(got.q, Pointwise(NanSensitiveFloatEq(), q));
      EXPECT_THAT(got.cache, Pointwise(NanSensitiveFloatEq(), cache));
    }
  }
}

TEST(QkvPost, ARowHasTheSameBitsInAnyCompany) {
  for (const QkvSetup& setup : {kSetups[1], kSetups[4]}) {
    const Layer layer(setup, MakeRopeTable(setup.num_rotary));
    std::vector<StepRow> rows;
    for (int32_t i = 0; i < 20; ++i) rows.push_back({i % 3, 50 * i, i});
    const std::vector<float> qkv = Normal(20 * layer.width(), 5);
    const Result all = layer.Run(rows, qkv, Element::kF32, KvElement::kF32);
    for (int first : {0, 3, 19}) {
      for (int count = 1; first + count <= 20; count += 4) {
        const Result part = layer.Run({rows.begin() + first, rows.begin() + first + count},
                                      {qkv.begin() + ptrdiff_t(size_t(first) * layer.width()),
                                       qkv.begin() + ptrdiff_t(size_t(first + count) * layer.width())},
                                      Element::kF32, KvElement::kF32);
        const size_t q_width = size_t(setup.heads * setup.head_dim);
        EXPECT_THAT(part.q, testing::ElementsAreArray(&all.q[size_t(first) * q_width], size_t(count) * q_width));
        for (size_t i = 0; i < part.cache.size(); ++i) {
          if (std::isnan(part.cache[i])) continue;
          ASSERT_EQ(part.cache[i], all.cache[i]);
        }
      }
    }
  }
}

// ---------------------------------------------------------------- MLA

struct MlaSetup {
  int heads, lora, nope, rope;
  RopeLayout layout;
};

class MlaLayer {
 public:
  explicit MlaLayer(const MlaSetup& setup)
      : s_(setup), table_(MakeRopeTable(setup.rope)), weight_(Normal(size_t(setup.lora), 8)) {}

  // `down` rows are [something | c | k_pe]; the queries have rows of their own with something behind.
  int latent_stride() const { return 6 + s_.lora + s_.rope; }
  int q_stride() const { return s_.heads * (s_.nope + s_.rope) + 10; }

  Result Run(const std::vector<float>& down, const std::vector<float>& q_in, Element q_element,
             KvElement kv_element) const {
    const DeviceStep step(kRows, kRopeLengths);
    const DeviceRope rope(table_, s_.layout);
    const CacheLayer cache(kv_element, kBlockSize, 1, s_.lora + s_.rope, 0, kBlocks);
    DeviceArray<float> device_down(down), device_q(q_in), weight(weight_);
    ElementArray q(q_element, kRows.size() * size_t(s_.heads * (s_.nope + s_.rope)));
    cuda::LaunchMlaQkvPost({.step = step.step,
                            .group = step.group,
                            .latent = device_down.data() + 6,
                            .latent_stride = latent_stride(),
                            .latent_norm = {NormParams{}, weight.data()},
                            .q_in = device_q.data(),
                            .q_in_stride = q_stride(),
                            .num_heads = s_.heads,
                            .kv_lora_rank = s_.lora,
                            .qk_nope_head_dim = s_.nope,
                            .qk_rope_head_dim = s_.rope,
                            .rope = rope.view,
                            .kv = cache.kv,
                            .q = q.data(),
                            .q_element = q_element},
                           nullptr);
    return {q.Read(), cache.Values()};
  }

  void ExpectAgrees() const {
    const std::vector<float> down = Normal(kRows.size() * size_t(latent_stride()), 1),
                             q_in = Normal(kRows.size() * size_t(q_stride()), 2);
    const Result got = Run(down, q_in, Element::kF32, KvElement::kF32);
    const int dim = s_.nope + s_.rope, key_dim = s_.lora + s_.rope;
    std::vector<double> q(got.q.size(), NAN), cache(got.cache.size(), NAN);
    for (size_t r = 0; r < kRows.size(); ++r) {
      if (kRows[r].sequence < 0) continue;
      const auto rotate = [&](double* x) { Rotate(table_, s_.layout, kRows[r].position, 0, x); };
      for (int h = 0; h < s_.heads; ++h) {
        double* head = &q[(r * size_t(s_.heads) + size_t(h)) * size_t(dim)];
        std::copy_n(&q_in[r * size_t(q_stride()) + size_t(h * dim)], dim, head);
        rotate(head + s_.nope);
      }
      double* key =
          &cache[size_t(kRows[r].slot / kBlockSize * kBlockSize * key_dim + kRows[r].slot % kBlockSize * key_dim)];
      std::copy_n(&down[r * size_t(latent_stride()) + 6], key_dim, key);
      Normalise(NormParams{}, weight_.data(), key, s_.lora);
      rotate(key + s_.lora);
    }
    for (size_t i = 0; i < q.size(); ++i) ASSERT_EQ(std::isnan(got.q[i]), std::isnan(q[i])) << i;
    for (size_t i = 0; i < cache.size(); ++i) ASSERT_EQ(std::isnan(got.cache[i]), std::isnan(cache[i])) << i;
    EXPECT_LE(RelativeError(got.q, q), 2e-6);
    EXPECT_LE(RelativeError(got.cache, cache), 2e-6);
    const Result rounded = Run(down, q_in, Element::kBF16, KvElement::kF8E4M3);
    for (size_t i = 0; i < q.size(); ++i) {
      ASSERT_THAT(rounded.q[i], NanSensitiveFloatEq(Bf16ToFloat(FloatToBf16(got.q[i]))));
    }
    for (size_t i = 0; i < cache.size(); ++i) {
      ASSERT_THAT(rounded.cache[i], NanSensitiveFloatEq(RoundTo(KvElement::kF8E4M3, got.cache[i])));
    }
  }

 private:
  const MlaSetup s_;
  const RopeTable table_;
  const std::vector<float> weight_;
};

TEST(MlaQkvPost, AgreesWithItsDefinition) {
  for (const MlaSetup& setup :
       {MlaSetup{16, 512, 128, 64, RopeLayout::kInterleaved}, MlaSetup{3, 24, 16, 8, RopeLayout::kHalfSplit},
        MlaSetup{4, 40, 24, 8, RopeLayout::kInterleaved}}) {
    MlaLayer(setup).ExpectAgrees();
  }
}

struct GatherSizes {
  int lora, nope, rope;
};

// Of whole pieces of 16 bytes, and of 4.
TEST(MlaGatherRope, CopiesTheTurnedPartsOnly) {
  for (const auto& [lora, nope, rope] : {GatherSizes{24, 16, 8}, {24, 16, 10}, {10, 8, 8}, {8, 2, 8}}) {
    for (Element element : {Element::kF32, Element::kBF16}) {
      const int tokens = 3, heads = 7;
      std::vector<float> values = Normal(size_t(tokens * heads * (nope + rope)), 1);
      ElementArray q(element, values), q_latent(element, size_t(tokens * heads * (lora + rope)));
      cuda::LaunchMlaGatherRope({tokens, heads, lora, nope, rope, q.data(), q_latent.data(), element}, nullptr);
      values = q.Read();
      const std::vector<float> got = q_latent.Read();
      for (int i = 0; i < tokens * heads; ++i) {
        for (int c = 0; c < lora + rope; ++c) {
          const float want = c < lora ? NAN : values[size_t(i * (nope + rope) + nope + c - lora)];
          EXPECT_THAT(got[size_t(i * (lora + rope) + c)], NanSensitiveFloatEq(want));
        }
      }
    }
  }
}

}  // namespace
}  // namespace sluice::cuda_testing
