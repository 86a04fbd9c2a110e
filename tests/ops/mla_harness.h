// Latent attention with random weights, run through any Ops over any schedule of steps.
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

struct MlaConfig {
  std::string name = "deepseek_v2_lite";
  int d_model = 64;
  Mla heads{4, std::nullopt, 32, 16, 8, 16};
  TensorType weights = TensorType::kF32;
  std::optional<TensorType> value_up;  // if not `weights`
  KvDType kv = KvDType::kF32;
  int block_size = 16;
  std::optional<NormParams> norm = NormParams{NormKind::kRms, 1e-5f, 0};
  bool bias = false;
  RopeLayout rope = RopeLayout::kInterleaved;
  int num_rotary = 8;
  decltype(RopeTable::length_rule) rope_rule;  // of sequences of RopeLength(sequence) tokens
  AttentionMask mask;
  float score_scale = 4;  // a softmax that is not flat
  int32_t expand_from = INT32_MAX;
  int prompt_len = 0;  // of sequence 0; of sequence s 50 s more
};

// What came out for one token of one sequence.
struct MlaRowTrace {
  std::vector<float> q, out;
};
using MlaTrace = std::map<std::pair<int, int>, MlaRowTrace>;  // by (sequence, position)

class MlaHarness {
 public:
  // The same config, prompt lengths and expand_from aside, gives the same weights for every Ops.
  MlaHarness(const MlaConfig& config, Ops* ops)
      : config_(config), ops_(ops), rng_(11), batch_(config.block_size, kBlocks * 16 / config.block_size, rng_) {
    const Mla& h = config.heads;
    const int q = h.num_heads * (h.qk_nope_head_dim + h.qk_rope_head_dim);
    const int down_q = h.q_lora_rank.value_or(q), down_kv = h.kv_lora_rank + h.qk_rope_head_dim;
    embedding_ = Linear({{PagedBatch::kTokens, config.d_model}}, TensorType::kF32);
    down_ = Linear({{down_q, config.d_model}, {down_kv, config.d_model}}, config.weights);
    if (h.q_lora_rank.has_value()) q_up_ = Linear({{q, *h.q_lora_rank}}, config.weights);
    const StoredTensor key = Up(config.weights, h.qk_nope_head_dim);
    const StoredTensor value = Up(config.value_up.value_or(config.weights), h.v_head_dim);
    auto up = ops->LoadMlaUp(key.view, value.view, h);
    EXPECT_TRUE(up.ok()) << up.status();
    up_ = *std::move(up);
    norm_ = Vector(config.d_model, 1), q_norm_ = Vector(h.q_lora_rank.value_or(1), 1);
    kv_norm_ = Vector(h.kv_lora_rank, 1), bias_ = Vector(down_q + down_kv, 0);
    std::vector<float> inv_freq;
    for (int i = 0; i < config.num_rotary / 2; ++i) {
      inv_freq.push_back(std::pow(100.0f, -2.0f * static_cast<float>(i) / static_cast<float>(config.num_rotary)));
    }
    rope_ = ops->LoadRope({inv_freq, 1.1f, config.rope_rule}, PagedBatch::kMaxPosition).value();
    x_ = ops->NewActivations(kMaxTokens, config.d_model, ActivationsUse::kResidual).value();
    q_ = ops->NewActivations(kMaxTokens, q, ActivationsUse::kQuery).value();
    out_ = ops->NewActivations(kMaxTokens, h.num_heads * h.v_head_dim, ActivationsUse::kAttentionOut).value();
    KvCacheShape shape;
    shape.layers = {{1, 16, 16}, {1, h.kv_lora_rank + h.qk_rope_head_dim, 0}};
    shape.block_size = config.block_size;
    shape.num_blocks = kBlocks * 16 / config.block_size;
    shape.dtype = config.kv;
    kv_ = ops->NewKvCache(shape).value();
    EXPECT_TRUE(ReserveFor(ops, kMaxTokens, 1, 1, config.expand_from != INT32_MAX).ok());
  }

  // Runs the schedule with fresh sequences.
  MlaTrace Run(const Schedule& schedule) {
    MlaTrace trace;
    for (const std::vector<Chunk>& step : schedule) RunStep(step, &trace);
    batch_.Reset();
    return trace;
  }

  void Forget(int sequence, int position) { batch_.Forget(sequence, position); }

  void RunStep(const std::vector<Chunk>& step, MlaTrace* trace) {
    batch_.Make(step, [&](int sequence) {
      RequestNumerics numerics({.mla_expand_from = config_.expand_from, .gemm_library_from = INT32_MAX, .rope = {}},
                               config_.prompt_len + 50 * sequence, 0);
      numerics.rope_class = 1000 - 300 * (sequence % 3);
      return numerics;
    });
    ops_->BeginStep(batch_.view());
    RunLayer();
    for (size_t row = 0; row < batch_.num_rows(); ++row) {
      MlaRowTrace& t = (*trace)[batch_.key(row)];
      t.q.resize(static_cast<size_t>(q_->cols()));
      t.out.resize(static_cast<size_t>(out_->cols()));
      EXPECT_TRUE(ops_->CopyActivations(*q_, static_cast<int64_t>(row), t.q).ok());
      EXPECT_TRUE(ops_->CopyActivations(*out_, static_cast<int64_t>(row), t.out).ok());
    }
  }

 private:
  static constexpr int kMaxTokens = 1100, kBlocks = 200, kLayer = 1;

  std::unique_ptr<LinearWeights> Linear(std::vector<std::pair<int, int>> shapes, TensorType type) {
    std::vector<StoredTensor> tensors;
    std::vector<TensorView> views;
    for (auto [out, in] : shapes) tensors.push_back(RandomTensor(type, out, in, rng_));
    for (const StoredTensor& t : tensors) views.push_back(t.view);
    auto weights = ops_->LoadLinear(views, LinearLayout::kStacked);
    EXPECT_TRUE(weights.ok()) << weights.status();
    return std::move(weights).value();
  }

  StoredTensor Up(TensorType type, int width) {
    const Mla& h = config_.heads;
    StoredTensor tensor = RandomTensor(type, int64_t{h.num_heads} * width, h.kv_lora_rank, rng_);
    tensor.view.shape = {h.num_heads, width, h.kv_lora_rank};
    return tensor;
  }

  std::unique_ptr<VectorWeights> Vector(int n, float mean) {
    std::normal_distribution<float> normal(mean, 0.3f);
    std::vector<float> values(static_cast<size_t>(n));
    for (float& v : values) v = normal(rng_);
    return ops_->LoadVector(values).value();
  }

  void RunLayer() {
    const MlaConfig& c = config_;
    const NormParams latent_norm{NormKind::kRms, 1e-6f, 0};
    ops_->Embed(*embedding_, 1, x_.get());
    MlaQkvArgs qkv;
    qkv.x = x_.get(), qkv.down = down_.get(), qkv.bias = c.bias ? bias_.get() : nullptr, qkv.heads = c.heads;
    if (c.norm) qkv.norm = NormArgs{*c.norm, norm_.get(), nullptr};
    qkv.q_latent_norm = {latent_norm, q_norm_.get(), nullptr}, qkv.q_up = q_up_.get();
    qkv.kv_latent_norm = {latent_norm, kv_norm_.get(), nullptr};
    qkv.rope = {rope_.get(), c.rope, c.num_rotary};
    qkv.kv = kv_.get(), qkv.layer = kLayer, qkv.kv_group = PagedBatch::kGroup, qkv.q = q_.get();
    ops_->MlaQkv(qkv);

    MlaAttentionArgs attention;
    attention.q = q_.get(), attention.heads = c.heads, attention.up = up_.get(), attention.kv = kv_.get();
    attention.layer = kLayer, attention.kv_group = PagedBatch::kGroup;
    attention.scale = c.score_scale / std::sqrt(static_cast<float>(c.heads.qk_nope_head_dim));
    attention.mask = c.mask, attention.out = out_.get();
    ops_->MlaAttention(attention);
  }

  const MlaConfig config_;
  Ops* const ops_;
  std::mt19937 rng_;
  PagedBatch batch_;
  std::unique_ptr<LinearWeights> embedding_, down_, q_up_;
  std::unique_ptr<MlaUpWeights> up_;
  std::unique_ptr<VectorWeights> norm_, q_norm_, kv_norm_, bias_;
  std::unique_ptr<RopeTableData> rope_;
  std::unique_ptr<Activations> x_, q_, out_;
  std::unique_ptr<KvCache> kv_;
};

// Every kind of latent attention that ops.h can express, by one or a few departures from DeepSeek-V2-Lite's.
inline std::vector<MlaConfig> MlaConfigs() {
  std::vector<MlaConfig> configs;
  const auto add = [&](const std::string& name, auto&& change) {
    MlaConfig c;
    change(c);
    c.name = name;
    configs.push_back(c);
  };
  add("absorbed", [](MlaConfig&) {});
  add("expanded", [](MlaConfig& c) { c.expand_from = 1, c.prompt_len = 1000; });
  add("expanded_prompts", [](MlaConfig& c) { c.expand_from = 1, c.prompt_len = 40; });
  add("long_prompts_expanded", [](MlaConfig& c) { c.expand_from = 100, c.prompt_len = 40; });
  add("q_lora", [](MlaConfig& c) { c.heads.q_lora_rank = 24; });
  add("q_lora_bias", [](MlaConfig& c) { c.heads.q_lora_rank = 24, c.bias = true; });
  add("bias_no_norm", [](MlaConfig& c) { c.bias = true, c.norm.reset(); });
  add("half_split_rope", [](MlaConfig& c) { c.rope = RopeLayout::kHalfSplit; });
  add("partial_rope", [](MlaConfig& c) { c.num_rotary = 6; });
  add("longrope", [](MlaConfig& c) { c.rope_rule = LongRopeRule{500, {0.9f, 0.2f, 0.05f, 0.01f}}; });
  add("dynamic_rope", [](MlaConfig& c) { c.rope_rule = DynamicNtkRule{100, 4, 500}; });
  for (const int32_t expand_from : {INT32_MAX, 1}) {
    const std::string form = expand_from == 1 ? "_expanded" : "_absorbed";
    const auto add_form = [&](const std::string& name, auto&& change) {
      add(name + form, [&](MlaConfig& c) {
        c.expand_from = expand_from, c.prompt_len = 1000;
        change(c);
      });
    };
    add_form("odd_sizes", [](MlaConfig& c) { c.d_model = 50, c.heads = {3, 11, 21, 10, 6, 13}, c.num_rotary = 6; });
    add_form("one_head", [](MlaConfig& c) { c.heads.num_heads = 1; });
    add_form("heads_20", [](MlaConfig& c) { c.heads.num_heads = 20; });
    add_form("heads_70", [](MlaConfig& c) { c.heads = {70, std::nullopt, 16, 8, 8, 8}; });
    add_form("window_1", [](MlaConfig& c) { c.mask = {MaskKind::kWindow, 1}; });
    add_form("window_70", [](MlaConfig& c) { c.mask = {MaskKind::kWindow, 70}; });
    add_form("chunk_64", [](MlaConfig& c) { c.mask = {MaskKind::kChunk, 64}; });
    add_form("blocks_of_64", [](MlaConfig& c) { c.block_size = 64; });
  }
  return configs;
}

}  // namespace sluice
