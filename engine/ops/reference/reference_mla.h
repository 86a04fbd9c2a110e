// Multi-head latent attention, one row after the other.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "engine/ops/ops.h"

namespace sluice::reference {

absl::StatusOr<std::unique_ptr<MlaUpWeights>> LoadMlaUp(const TensorView& key_up, const TensorView& value_up,
                                                        const Mla& heads);
void MlaQkv(const BatchView& batch, const MlaQkvArgs& args);
void MlaAttention(const BatchView& batch, const MlaAttentionArgs& args);

}  // namespace sluice::reference
