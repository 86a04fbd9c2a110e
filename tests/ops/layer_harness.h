// One transformer layer with random weights, run through any Ops over any schedule of steps: what the tests of
// operations compare. All choices of ops.h are fields of LayerConfig.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/ops/ops.h"
#include "tests/ops/paged_batch.h"
#include "tests/ops/reserve_for.h"
#include "tests/ops/stored_tensor.h"

namespace sluice {

struct LayerConfig {
  std::string name = "llama";
  int d_model = 64, hidden = 96, vocab = 70;
  Gqa heads{4, 2, 32, 32};
  TensorType weights = TensorType::kF32;
  KvDType kv = KvDType::kF32;
  int block_size = 16;

  std::optional<NormParams> pre_norm = NormParams{NormKind::kRms, 1e-5f, 0};
  std::optional<NormParams> post_norm;
  bool norm_bias = false;  // of pre_norm, kLayer
  bool biases = false;
  bool learned_positions = false;
  float embedding_scale = 1;
  std::optional<RopeLayout> rope = RopeLayout::kHalfSplit;
  int num_rotary = 32;
  decltype(RopeTable::length_rule) rope_rule;  // of sequences of RopeLength(sequence) tokens
  QkNormKind qk_norm = QkNormKind::kNone;
  bool qk_norm_after_rope = false;
  std::optional<float> temperature_floor;
  float score_scale = 4;  // over 1 / sqrt(head_dim): a softmax that is not flat
  AttentionMask mask;
  std::optional<float> softcap;
  bool sinks = false;
  bool gated = true;
  ActivationKind activation = ActivationKind::kSilu;
  float logit_scale = 1;
  std::optional<float> logit_softcap;
};

// What came out for one token of one sequence.
struct RowTrace {
  std::vector<float> q, attention, after_attention, after_ffn, logits;
};
using Trace = std::map<std::pair<int, int>, RowTrace>;  // by (sequence, position)

class LayerHarness {
 public:
  static constexpr int kMaxPosition = PagedBatch::kMaxPosition, kLayer = 1, kGroup = PagedBatch::kGroup;

  // The same config gives the same weights for every Ops.
  LayerHarness(const LayerConfig& config, Ops* ops)
      : config_(config), ops_(ops), rng_(7), batch_(config.block_size, kBlocks * 16 / config.block_size, block_rng_) {
    const Gqa& h = config.heads;
    const int q = h.num_heads * h.head_dim, k = h.num_kv_heads * h.head_dim, v = h.num_kv_heads * h.value_head_dim;
    embedding_ = Linear({{kTokens, config.d_model}}, LinearLayout::kStacked, TensorType::kF32);
    positions_ = Linear({{kMaxPosition, config.d_model}}, LinearLayout::kStacked, TensorType::kF32);
    qkv_ = Linear({{q, config.d_model}, {k, config.d_model}, {v, config.d_model}}, LinearLayout::kStacked);
    o_ = Linear({{config.d_model, h.num_heads * h.value_head_dim}}, LinearLayout::kStacked);
    if (config.gated) {
      gate_up_ = Linear({{config.hidden, config.d_model}, {config.hidden, config.d_model}}, LinearLayout::kGateUp);
    } else {
      gate_up_ = Linear({{config.hidden, config.d_model}}, LinearLayout::kStacked);
    }
    down_ = Linear({{config.d_model, config.hidden}}, LinearLayout::kStacked);
    head_ = Linear({{config.vocab, config.d_model}}, LinearLayout::kStacked);
    norm_weight_ = Vector(config.d_model, 1), norm_bias_ = Vector(config.d_model, 0);
    const bool full = config.qk_norm == QkNormKind::kFullWidth;
    q_norm_ = Vector(full ? q : h.head_dim, 1), k_norm_ = Vector(full ? k : h.head_dim, 1);
    qkv_bias_ = Vector(q + k + v, 0), o_bias_ = Vector(config.d_model, 0), down_bias_ = Vector(config.d_model, 0);
    gate_up_bias_ = Vector(config.hidden * (config.gated ? 2 : 1), 0), sinks_ = Vector(h.num_heads, 1);
    std::vector<float> inv_freq;
    for (int i = 0; i < config.num_rotary / 2; ++i) {
      inv_freq.push_back(std::pow(10000.0f, -2.0f * static_cast<float>(i) / static_cast<float>(config.num_rotary)));
    }
    rope_ = ops->LoadRope({inv_freq, 1.1f, config.rope_rule}, kMaxPosition).value();
    x_ = ops->NewActivations(kMaxTokens, config.d_model, ActivationsUse::kResidual).value();
    q_ = ops->NewActivations(kMaxTokens, q, ActivationsUse::kQuery).value();
    attention_ = ops->NewActivations(kMaxTokens, h.num_heads * h.value_head_dim, ActivationsUse::kAttentionOut).value();
    KvCacheShape shape;
    shape.layers = {{1, 16, 16}, {h.num_kv_heads, h.head_dim, h.value_head_dim}};
    shape.block_size = config.block_size;
    shape.num_blocks = kBlocks * 16 / config.block_size;
    shape.dtype = config.kv;
    kv_ = ops->NewKvCache(shape).value();
    EXPECT_TRUE(ReserveFor(ops, kMaxTokens, kMaxTokens, config.vocab).ok());
  }

  // Runs the schedule with fresh sequences. Chunks may be split and mixed at will: traces of a token must not change.
  Trace Run(const Schedule& schedule) {
    Trace trace;
    for (const std::vector<Chunk>& step : schedule) RunStep(step, &trace);
    batch_.Reset();
    return trace;
  }

  // Blocks of positions before `position` are taken away from the table, as for a window layer.
  void Forget(int sequence, int position) { batch_.Forget(sequence, position); }
  void RunStep(const std::vector<Chunk>& step, Trace* trace) {
    batch_.Make(step, [](int sequence) {
      RequestNumerics numerics;
      numerics.rope_class = RopeLength(sequence);
      return numerics;
    });
    ops_->BeginStep(batch_.view());
    RunLayer();
    for (size_t row = 0; row < batch_.num_rows(); ++row) {
      if (trace != nullptr) (*trace)[batch_.key(row)] = traces_[row];
    }
  }

 private:
  static constexpr int kTokens = PagedBatch::kTokens, kMaxTokens = 1100, kBlocks = 200;

  static int RopeLength(int sequence) { return 1000 - 300 * (sequence % 3); }

  std::unique_ptr<LinearWeights> Linear(std::vector<std::pair<int, int>> shapes, LinearLayout layout,
                                        std::optional<TensorType> type = {}) {
    std::vector<StoredTensor> tensors;
    std::vector<TensorView> views;
    for (auto [out, in] : shapes) tensors.push_back(RandomTensor(type.value_or(config_.weights), out, in, rng_));
    for (const StoredTensor& t : tensors) views.push_back(t.view);
    auto weights = ops_->LoadLinear(views, layout);
    EXPECT_TRUE(weights.ok()) << weights.status();
    return std::move(weights).value();
  }

  std::unique_ptr<VectorWeights> Vector(int n, float mean) {
    std::normal_distribution<float> normal(mean, 0.3f);
    std::vector<float> values(static_cast<size_t>(n));
    for (float& v : values) v = normal(rng_);
    return ops_->LoadVector(values).value();
  }

  NormArgs Norm(const NormParams& params) const {
    return {params, norm_weight_.get(), config_.norm_bias ? norm_bias_.get() : nullptr};
  }

  void RunLayer() {
    const LayerConfig& c = config_;
    traces_.assign(batch_.num_rows(), {});
    const auto pre = c.pre_norm ? std::optional(Norm(*c.pre_norm)) : std::nullopt;
    const auto post = c.post_norm ? std::optional(Norm(*c.post_norm)) : std::nullopt;
    const auto if_biased = [&](const std::unique_ptr<VectorWeights>& b) { return c.biases ? b.get() : nullptr; };
    ops_->Embed(*embedding_, c.embedding_scale, x_.get());
    if (c.learned_positions) ops_->AddPositions(*positions_, x_.get());

    QkvArgs qkv;
    qkv.x = x_.get(), qkv.norm = pre, qkv.qkv = qkv_.get(), qkv.bias = if_biased(qkv_bias_), qkv.heads = c.heads;
    qkv.heads.qk_norm = {c.qk_norm, {NormKind::kRms, 1e-6f, 0}, c.qk_norm_after_rope};
    qkv.q_norm = q_norm_.get(), qkv.k_norm = k_norm_.get();
    if (c.rope) qkv.rope = RopeArgs{rope_.get(), *c.rope, c.num_rotary};
    qkv.query_temperature_floor = c.temperature_floor, qkv.query_temperature_coef = 0.1f;
    qkv.kv = kv_.get(), qkv.layer = kLayer, qkv.kv_group = kGroup, qkv.q = q_.get();
    ops_->Qkv(qkv);
    Record(*q_, &RowTrace::q);

    AttentionArgs attention;
    attention.q = q_.get(), attention.heads = c.heads, attention.kv = kv_.get();
    attention.layer = kLayer, attention.kv_group = kGroup;
    attention.scale = 1 / std::sqrt(static_cast<float>(c.heads.head_dim)) * c.score_scale;
    attention.softcap = c.softcap, attention.mask = c.mask, attention.sinks = c.sinks ? sinks_.get() : nullptr;
    attention.out = attention_.get();
    ops_->Attention(attention);
    Record(*attention_, &RowTrace::attention);

    ops_->Project({attention_.get(), o_.get(), if_biased(o_bias_), post, x_.get()});
    Record(*x_, &RowTrace::after_attention);

    DenseFfnArgs ffn;
    ffn.norm = pre, ffn.gate_up = gate_up_.get(), ffn.gate_up_bias = if_biased(gate_up_bias_), ffn.gated = c.gated;
    ffn.activation = c.activation, ffn.limit = 0.5f;
    ffn.down = down_.get(), ffn.down_bias = if_biased(down_bias_), ffn.post_norm = post, ffn.x = x_.get();
    ops_->Ffn(ffn);
    Record(*x_, &RowTrace::after_ffn);

    const NormArgs final_norm = Norm(c.pre_norm.value_or(NormParams{}));
    ops_->Logits({x_.get(), final_norm, head_.get(), c.logit_scale, c.logit_softcap});
    for (size_t row = 0; row < traces_.size(); ++row) {
      traces_[row].logits.resize(static_cast<size_t>(c.vocab));
      EXPECT_TRUE(ops_->CopyLogits(static_cast<int32_t>(row), traces_[row].logits).ok());
    }
  }

  void Record(const Activations& rows, std::vector<float> RowTrace::*member) {
    for (size_t row = 0; row < traces_.size(); ++row) {
      (traces_[row].*member).resize(static_cast<size_t>(rows.cols()));
      EXPECT_TRUE(ops_->CopyActivations(rows, static_cast<int64_t>(row), traces_[row].*member).ok());
    }
  }

  const LayerConfig config_;
  Ops* const ops_;
  std::mt19937 rng_;  // of the weights alone: tolerances hold for these
  std::mt19937 block_rng_{8};
  PagedBatch batch_;
  std::unique_ptr<LinearWeights> embedding_, positions_, qkv_, o_, gate_up_, down_, head_;
  std::unique_ptr<VectorWeights> norm_weight_, norm_bias_, q_norm_, k_norm_, qkv_bias_, o_bias_, gate_up_bias_,
      down_bias_, sinks_;
  std::unique_ptr<RopeTableData> rope_;
  std::unique_ptr<Activations> x_, q_, attention_;
  std::unique_ptr<KvCache> kv_;
  std::vector<RowTrace> traces_;
};

// max |a - b| / max |b|
inline double RelativeError(const std::vector<float>& a, const std::vector<float>& b) {
  double worst = 0, largest = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    const double d = std::abs(double{a[i]} - double{b[i]});
    worst = std::isnan(d) ? INFINITY : std::max(worst, d);
    largest = std::max(largest, std::abs(double{b[i]}));
  }
  return largest > 0 ? worst / largest : worst;
}

// Every kind of layer that ops.h can express, by one or a few departures from the Llama one.
inline std::vector<LayerConfig> LayerConfigs() {
  std::vector<LayerConfig> configs;
  const auto add = [&](const std::string& name, auto&& change) {
    LayerConfig c;
    change(c);
    c.name = name;
    configs.push_back(c);
  };
  add("llama", [](LayerConfig&) {});
  add("interleaved_rope", [](LayerConfig& c) { c.rope = RopeLayout::kInterleaved; });
  add("no_rope", [](LayerConfig& c) { c.rope.reset(); });
  add("mha_head_64", [](LayerConfig& c) { c.heads = {2, 2, 64, 64}, c.num_rotary = 64; });
  add("mqa_group_7", [](LayerConfig& c) { c.heads = {7, 1, 32, 32}; });
  add("group_16_head_128", [](LayerConfig& c) { c.heads = {16, 1, 128, 128}, c.num_rotary = 128; });
  add("head_16", [](LayerConfig& c) { c.heads = {4, 4, 16, 16}, c.num_rotary = 16; });
  add("head_80", [](LayerConfig& c) { c.heads = {2, 1, 80, 80}, c.num_rotary = 80; });
  add("head_20_value_12", [](LayerConfig& c) { c.heads = {3, 1, 20, 12}, c.num_rotary = 20; });
  add("value_head_64", [](LayerConfig& c) { c.heads = {4, 2, 32, 64}; });
  add("value_head_narrower", [](LayerConfig& c) { c.heads = {4, 2, 96, 32}, c.num_rotary = 96; });
  add("partial_rotary_half_split", [](LayerConfig& c) { c.num_rotary = 12; });
  add("partial_rotary_interleaved", [](LayerConfig& c) { c.num_rotary = 10, c.rope = RopeLayout::kInterleaved; });
  add("longrope", [](LayerConfig& c) {
    LongRopeRule rule{500, {}};
    for (int i = 0; i < c.num_rotary / 2; ++i) rule.long_inv_freq.push_back(1.0f / static_cast<float>(3 + 2 * i));
    c.rope_rule = rule;
  });
  add("dynamic_rope", [](LayerConfig& c) { c.rope_rule = DynamicNtkRule{1e4f, 4, 500}; });
  add("dynamic_rope_partial_interleaved", [](LayerConfig& c) {
    c.rope_rule = DynamicNtkRule{1e4f, 2, 600};
    c.num_rotary = 10, c.rope = RopeLayout::kInterleaved;
  });
  add("gpt2", [](LayerConfig& c) {
    c.pre_norm = NormParams{NormKind::kLayer, 1e-5f, 0};
    c.norm_bias = c.biases = c.learned_positions = true;
    c.rope.reset();
    c.gated = false;
    c.activation = ActivationKind::kGeluTanh;
  });
  add("gelu_erf", [](LayerConfig& c) { c.activation = ActivationKind::kGeluErf; });
  add("gelu_tanh_gated", [](LayerConfig& c) { c.activation = ActivationKind::kGeluTanh; });
  add("ungated_silu", [](LayerConfig& c) { c.gated = false; });
  add("gpt_oss", [](LayerConfig& c) {
    c.biases = c.sinks = true;
    c.activation = ActivationKind::kSwigluOai;
    c.mask = {MaskKind::kWindow, 128};
  });
  add("qwen2_bias", [](LayerConfig& c) { c.biases = true; });
  add("qwen3_qk_norm", [](LayerConfig& c) { c.qk_norm = QkNormKind::kPerHead; });
  add("olmo2", [](LayerConfig& c) {
    c.qk_norm = QkNormKind::kFullWidth;
    c.post_norm = c.pre_norm;
    c.pre_norm.reset();
  });
  add("qk_norm_after_rope", [](LayerConfig& c) { c.qk_norm = QkNormKind::kPerHead, c.qk_norm_after_rope = true; });
  add("full_qk_norm_after_rope",
      [](LayerConfig& c) { c.qk_norm = QkNormKind::kFullWidth, c.qk_norm_after_rope = c.biases = true; });
  add("llama4", [](LayerConfig& c) {
    c.qk_norm = QkNormKind::kL2PerHead, c.qk_norm_after_rope = true;
    c.temperature_floor = 16;
    c.mask = {MaskKind::kChunk, 100};
    c.rope = RopeLayout::kInterleaved;
  });
  add("gemma2", [](LayerConfig& c) {
    c.post_norm = c.pre_norm;
    c.pre_norm->weight_offset = c.post_norm->weight_offset = 1;
    c.softcap = 5, c.logit_softcap = 3, c.logit_scale = 0.7f, c.embedding_scale = 8;
    c.activation = ActivationKind::kGeluTanh;
    c.mask = {MaskKind::kWindow, 65};
  });
  add("window_1", [](LayerConfig& c) { c.mask = {MaskKind::kWindow, 1}; });
  add("window_17", [](LayerConfig& c) { c.mask = {MaskKind::kWindow, 17}; });
  add("chunk_64", [](LayerConfig& c) { c.mask = {MaskKind::kChunk, 64}; });
  add("odd_sizes", [](LayerConfig& c) { c.d_model = 50, c.hidden = 37, c.vocab = 33; });
  add("blocks_of_32", [](LayerConfig& c) { c.block_size = 32; });
  add("blocks_of_64", [](LayerConfig& c) { c.block_size = 64; });
  return configs;
}

}  // namespace sluice
