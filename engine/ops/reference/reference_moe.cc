#include "engine/ops/reference/reference_moe.h"

#include "engine/base/check.h"
#include "engine/base/status_macros.h"
#include "engine/ops/moe_routing.h"
#include "engine/ops/reference/reference_math.h"
#include "engine/ops/validate.h"

namespace sluice::reference {
namespace {

struct Experts : ExpertWeights {
  std::vector<Matrix> matrices;
  int32_t num_experts() const override { return int32_t(matrices.size()); }
  int64_t out_features() const override { return matrices[0].out; }
  int64_t in_features() const override { return matrices[0].in; }
  int64_t resident_bytes() const override { return num_experts() * matrices[0].resident_bytes(); }
};

const Experts& E(const ExpertWeights* w) { return static_cast<const Experts&>(*w); }

// down * (act(gate * h) * (up * h)); the biases may be null.
Floats FeedForward(const MoeArgs& args, const Matrix& gate_up, const float* gate_up_bias, const Matrix& down,
                   const float* down_bias, const Floats& h) {
  Floats y = Multiply(gate_up, h.data(), gate_up_bias);
  const size_t width = size_t(down.in);
  SLUICE_CHECK(y.size() == 2 * width);
  for (size_t i = 0; i < width; i++) {
    y[i] = float(ActivateGated(args.activation, args.alpha, args.limit, y[i], y[width + i]));
  }
  return Multiply(down, y.data(), down_bias);
}

std::vector<ExpertChoice> Route(const MoeArgs& args, const Floats& h) {
  std::vector<double> scratch(RoutingScratch(args.routing));
  std::vector<ExpertChoice> choices(size_t(args.routing.num_experts_per_token));
  ChooseExperts(args.routing, Multiply(M(args.router), h.data(), V(args.router_bias)), V(args.selection_bias), scratch,
                choices);
  return choices;
}

Floats Mix(const MoeArgs& args, const Floats& h) {
  std::vector<double> sum(h.size());
  const auto add = [&](const Floats& y, double weight) {
    for (size_t i = 0; i < sum.size(); i++) sum[i] += weight * double(y[i]);
  };
  for (const ExpertChoice& choice : Route(args, h)) {
    const Matrix& gate_up = E(args.gate_up).matrices[size_t(choice.expert)];
    const Matrix& down = E(args.down).matrices[size_t(choice.expert)];
    const float* gate_up_bias = args.gate_up_bias ? V(args.gate_up_bias) + choice.expert * gate_up.out : nullptr;
    const float* down_bias = args.down_bias ? V(args.down_bias) + choice.expert * down.out : nullptr;
    Floats in = h;
    if (args.weight_on_input) {
      for (float& v : in) v *= choice.weight;
    }
    add(FeedForward(args, gate_up, gate_up_bias, down, down_bias, in), args.weight_on_input ? 1 : choice.weight);
  }
  if (args.shared_gate_up) {
    add(FeedForward(args, M(args.shared_gate_up), nullptr, M(args.shared_down), nullptr, h), 1);
  }
  return Floats(sum.begin(), sum.end());
}

}  // namespace

absl::StatusOr<std::unique_ptr<ExpertWeights>> LoadExperts(std::span<const std::vector<TensorView>> experts,
                                                           LinearLayout layout) {
  SLUICE_RETURN_IF_ERROR(ValidateExperts(experts, layout));
  auto loaded = std::make_unique<Experts>();
  for (const std::vector<TensorView>& parts : experts) loaded->matrices.push_back(ReadMatrix(parts));
  return loaded;
}

void Moe(int num_tokens, const MoeArgs& args) {
  SLUICE_CHECK(args.gate_up->num_experts() == args.routing.num_experts);
  SLUICE_CHECK(args.down->num_experts() == args.routing.num_experts);
  for (int r = 0; r < num_tokens; r++) {
    AddToResidual(Mix(args, NormedRow(R(args.x), r, args.norm)), args.post_norm, R(args.x).row(r));
  }
}

}  // namespace sluice::reference
