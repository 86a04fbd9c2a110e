// One mixture of experts with random weights, run through any Ops over any batch of rows. All choices of MoeArgs are
// fields of MoeConfig.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/ops/ops.h"
#include "tests/ops/reserve_for.h"
#include "tests/ops/stored_tensor.h"

namespace sluice {

struct MoeConfig {
  std::string name = "mixtral";
  int d_model = 64, hidden = 96;
  int shared_hidden = 0;  // 0: no shared expert
  MoeRouting routing{8, 2, MoeScore::kSoftmaxAll, {}, true};
  TensorType weights = TensorType::kF32, router_type = TensorType::kF32;
  std::optional<TensorType> shared_type;  // none: as `weights`
  std::optional<NormParams> pre_norm = NormParams{NormKind::kRms, 1e-5f, 0};
  std::optional<NormParams> post_norm;
  bool router_bias = false, expert_bias = false, weight_on_input = false;
  std::optional<float> selection_bias;  // the mean of the biases
  ActivationKind activation = ActivationKind::kSilu;
};

class MoeHarness {
 public:
  // Tokens are the rows of a table: [0, kTokens) random, then one each of a NaN, infinities of both signs, and zeros.
  static constexpr int kTokens = 800, kNanToken = 800, kInfToken = 801, kZeroToken = 802;

  // The same config gives the same weights for every Ops.
  MoeHarness(const MoeConfig& config, Ops* ops)
      : config_(config),
        ops_(ops),
        rng_(11),
        stored_router_(RandomTensor(config.router_type, config.routing.num_experts, config.d_model, rng_)) {
    const int d = config.d_model, h = config.hidden, experts = config.routing.num_experts;
    StoredTensor table = RandomTensor(TensorType::kF32, kTokens + 3, d, rng_);
    float* values = reinterpret_cast<float*>(table.bytes.data());
    for (int i = 0; i < kTokens * d; ++i) values[i] *= 20;
    std::fill_n(values + kTokens * d, 3 * d, 0.0f);
    values[kNanToken * d + d / 2] = NAN;
    values[kInfToken * d] = INFINITY, values[kInfToken * d + 1] = -INFINITY;
    table_ = Load({table.view}, LinearLayout::kStacked);
    router_ = Load({stored_router_.view}, LinearLayout::kRouter);
    for (int e = 0; e < experts; ++e) {
      gates_.push_back(RandomTensor(config.weights, h, d, rng_));
      ups_.push_back(RandomTensor(config.weights, h, d, rng_));
      downs_.push_back(RandomTensor(config.weights, d, h, rng_));
    }
    LoadExperts();
    if (config.shared_hidden > 0) {
      const TensorType type = config.shared_type.value_or(config.weights);
      const StoredTensor gate = RandomTensor(type, config.shared_hidden, d, rng_),
                         up = RandomTensor(type, config.shared_hidden, d, rng_),
                         down = RandomTensor(type, d, config.shared_hidden, rng_);
      shared_gate_up_ = Load({gate.view, up.view}, LinearLayout::kGateUp);
      shared_down_ = Load({down.view}, LinearLayout::kStacked);
    }
    norm_weight_ = Vector(d, 1, 0.3f);
    router_bias_ = Vector(experts, 0, 0.3f);
    selection_bias_ = Vector(experts, config.selection_bias.value_or(0), 0.3f);
    gate_up_bias_ = Vector(experts * 2 * h, 0, 0.3f);
    down_bias_ = Vector(experts * d, 0, 0.3f);
    x_ = ops->NewActivations(kMaxRows, d, ActivationsUse::kResidual).value();
    EXPECT_TRUE(ReserveFor(ops, kMaxRows, 1, 1).ok());
  }

  // What Moe makes of these tokens' rows.
  std::vector<std::vector<float>> Run(const std::vector<int32_t>& tokens) {
    Begin(tokens, 1);
    ops_->Moe(args());
    return Rows();
  }

  // x, and x + the feed-forward of expert `expert` alone, for one token times `scale`.
  std::vector<float> Input(int32_t token, float scale) {
    Begin({token}, scale);
    return Rows()[0];
  }
  std::vector<float> RunDense(int32_t token, float scale, int expert) {
    const size_t e = static_cast<size_t>(expert);
    const auto gate_up = Load({gates_[e].view, ups_[e].view}, LinearLayout::kGateUp);
    const auto down = Load({downs_[e].view}, LinearLayout::kStacked);
    Begin({token}, scale);
    DenseFfnArgs ffn;
    ffn.norm = args().norm, ffn.gate_up = gate_up.get(), ffn.activation = config_.activation, ffn.limit = kLimit;
    ffn.down = down.get(), ffn.post_norm = args().post_norm, ffn.x = x_.get();
    ops_->Ffn(ffn);
    return Rows()[0];
  }

  // The router's logits of one token, without norm and bias.
  std::vector<float> RouterLogits(int32_t token) {
    const std::vector<float> x = Input(token, 1);
    std::vector<float> logits;
    for (int e = 0; e < config_.routing.num_experts; ++e) {
      const std::vector<float> weights = stored_router_.Row(e);
      logits.push_back(static_cast<float>(std::inner_product(x.begin(), x.end(), weights.begin(), 0.0)));
    }
    return logits;
  }

  // Replaces the weights of an expert (f32 only).
  void FillExpert(int expert, float value) {
    for (std::vector<StoredTensor>* parts : {&gates_, &ups_, &downs_}) {
      std::vector<uint8_t>& bytes = (*parts)[static_cast<size_t>(expert)].bytes;
      std::fill_n(reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float), value);
    }
    LoadExperts();
  }

  void SetSelectionBias(const std::vector<float>& values) { selection_bias_ = ops_->LoadVector(values).value(); }
  void SetDownBias(const std::vector<float>& values) { down_bias_ = ops_->LoadVector(values).value(); }

  MoeArgs args() const {
    const MoeConfig& c = config_;
    MoeArgs args;
    if (c.pre_norm) args.norm = NormArgs{*c.pre_norm, norm_weight_.get()};
    if (c.post_norm) args.post_norm = NormArgs{*c.post_norm, norm_weight_.get()};
    args.routing = c.routing;
    args.router = router_.get(), args.router_bias = c.router_bias ? router_bias_.get() : nullptr;
    args.selection_bias = c.selection_bias ? selection_bias_.get() : nullptr;
    args.weight_on_input = c.weight_on_input;
    args.gate_up = gate_up_.get(), args.gate_up_bias = c.expert_bias ? gate_up_bias_.get() : nullptr;
    args.activation = c.activation, args.limit = kLimit;
    args.down = down_.get(), args.down_bias = c.expert_bias ? down_bias_.get() : nullptr;
    args.shared_gate_up = shared_gate_up_.get(), args.shared_down = shared_down_.get();
    args.x = x_.get();
    return args;
  }

 private:
  static constexpr int kMaxRows = 1024;
  static constexpr float kLimit = 0.5f;

  std::unique_ptr<LinearWeights> Load(const std::vector<TensorView>& parts, LinearLayout layout) {
    auto weights = ops_->LoadLinear(parts, layout);
    EXPECT_TRUE(weights.ok()) << weights.status();
    return std::move(weights).value();
  }

  void LoadExperts() {
    std::vector<std::vector<TensorView>> gate_up, down;
    for (size_t e = 0; e < gates_.size(); ++e) {
      gate_up.push_back({gates_[e].view, ups_[e].view});
      down.push_back({downs_[e].view});
    }
    gate_up_ = ops_->LoadExperts(gate_up, LinearLayout::kGateUp).value();
    down_ = ops_->LoadExperts(down, LinearLayout::kStacked).value();
  }

  std::unique_ptr<VectorWeights> Vector(int n, float mean, float deviation) {
    std::normal_distribution<float> normal(mean, deviation);
    std::vector<float> values(static_cast<size_t>(n));
    for (float& v : values) v = normal(rng_);
    return ops_->LoadVector(values).value();
  }

  void Begin(const std::vector<int32_t>& tokens, float scale) {
    tokens_ = tokens;
    positions_.assign(tokens.size(), 0);
    row_starts_.resize(tokens.size() + 1);
    std::iota(row_starts_.begin(), row_starts_.end(), 0);
    context_lens_.assign(tokens.size(), 1);
    ops_->BeginStep({tokens_, positions_, row_starts_, context_lens_, {}, {}});
    ops_->Embed(*table_, scale, x_.get());
  }

  std::vector<std::vector<float>> Rows() {
    std::vector<std::vector<float>> rows(tokens_.size(), std::vector<float>(static_cast<size_t>(config_.d_model)));
    for (size_t r = 0; r < rows.size(); ++r) {
      EXPECT_TRUE(ops_->CopyActivations(*x_, static_cast<int64_t>(r), rows[r]).ok());
    }
    return rows;
  }

  const MoeConfig config_;
  Ops* const ops_;
  std::mt19937 rng_;
  const StoredTensor stored_router_;
  std::vector<StoredTensor> gates_, ups_, downs_;  // [expert]
  std::unique_ptr<LinearWeights> table_, router_, shared_gate_up_, shared_down_;
  std::unique_ptr<ExpertWeights> gate_up_, down_;
  std::unique_ptr<VectorWeights> norm_weight_, router_bias_, selection_bias_, gate_up_bias_, down_bias_;
  std::unique_ptr<Activations> x_;
  std::vector<int32_t> tokens_, positions_, row_starts_, context_lens_;
};

// The mixtures of the architectures we know, and what lies at the edges of MoeArgs.
inline std::vector<MoeConfig> MoeConfigs() {
  std::vector<MoeConfig> configs;
  const auto add = [&](const std::string& name, auto&& change) {
    MoeConfig c;
    change(c);
    c.name = name;
    configs.push_back(c);
  };
  add("mixtral", [](MoeConfig&) {});
  add("qwen3_moe", [](MoeConfig& c) { c.routing = {16, 4, MoeScore::kSoftmaxAll}; });
  add("gpt_oss", [](MoeConfig& c) {
    c.routing = {8, 3, MoeScore::kSoftmaxTopK};
    c.router_bias = c.expert_bias = true;
    c.activation = ActivationKind::kSwigluOai;
  });
  add("llama4", [](MoeConfig& c) {
    c.routing = {4, 1, MoeScore::kSigmoid};
    c.weight_on_input = true;
    c.shared_hidden = 80;
  });
  add("deepseek_v2", [](MoeConfig& c) {
    c.routing = {12, 3, MoeScore::kSoftmaxAll, MoeGroups{4, 2, MoeGroupScore::kMax}, false, 0, 16};
    c.shared_hidden = 192;
  });
  add("deepseek_v3", [](MoeConfig& c) {
    c.routing = {16, 4, MoeScore::kSigmoid, MoeGroups{4, 2, MoeGroupScore::kTop2Sum}, true, 1e-20f, 2.5f};
    c.selection_bias = -1.5f;
    c.shared_hidden = 96;
  });
  add("post_norm", [](MoeConfig& c) {
    c.post_norm = c.pre_norm;
    c.pre_norm.reset();
    c.activation = ActivationKind::kGeluTanh;
  });
  add("every_expert", [](MoeConfig& c) { c.routing = {5, 5, MoeScore::kSoftmaxAll}; });
  add("one_expert", [](MoeConfig& c) { c.routing = {1, 1, MoeScore::kSoftmaxAll}; });
  add("biases_and_weight_on_input", [](MoeConfig& c) { c.expert_bias = c.weight_on_input = true; });
  add("odd_sizes", [](MoeConfig& c) { c.d_model = 50, c.hidden = 37, c.shared_hidden = 21; });
  add("many_panels", [](MoeConfig& c) { c.d_model = 544, c.hidden = 48; });
  return configs;
}

}  // namespace sluice
