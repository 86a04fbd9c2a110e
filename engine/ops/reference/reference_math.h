// The formulas that the reference's operations share, one row or one value at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "engine/ops/reference/reference_types.h"

namespace sluice::reference {

// `x` as it comes back from a cache of this type.
float RoundTo(KvDType type, float x);

// In place; weight and bias may be null (1 and 0).
void Normalise(float* x, int64_t n, const NormParams& params, const float* weight, const float* bias);
Floats NormedRow(const Rows& x, int64_t row, const std::optional<NormArgs>& norm);
void NormHeads(const QkNormSpec& spec, const VectorWeights* weight, float* x, int num_heads, int head_dim);

// The values of the parts, one below the other. REQUIRES: they are valid (engine/ops/validate.h).
Matrix ReadMatrix(std::span<const TensorView> parts);

// w * x + bias; bias may be null.
Floats Multiply(const Matrix& w, const float* x, const float* bias);

// x += [post_norm](y)
void AddToResidual(Floats y, const std::optional<NormArgs>& post_norm, float* x);

// cos and sin, by pair, for a row at `position` of a sequence of the batch.
struct Rotation {
  std::vector<double> cos, sin;
};
Rotation RotationAt(const RopeArgs& rope, const BatchView& batch, int sequence, int32_t position);
// Turns the pairs of a head, in place.
void Rotate(const RopeArgs& rope, const Rotation& rotation, float* head);

bool IsVisible(const AttentionMask& mask, int64_t query, int64_t key);

// REQUIRES: not kSwigluOai, which has a gate.
double Activate(ActivationKind kind, double x);
double ActivateGated(ActivationKind kind, double alpha, double limit, double gate, double up);

}  // namespace sluice::reference
