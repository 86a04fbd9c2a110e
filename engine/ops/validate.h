// Checks shared by every implementation of Ops: what a model file or a flag could get wrong about shapes.
#pragma once

#include <span>
#include <vector>

#include "absl/status/status.h"
#include "engine/base/tensor_view.h"
#include "engine/ops/ops.h"

namespace sluice {

// Every part is [out_i, in] with the same `in`, positive sizes, a type that can be dequantised, whole blocks per row
// and exactly the bytes that its shape needs; kGateUp has two parts of equal shape. The error names the part.
absl::Status ValidateLinearParts(std::span<const TensorView> parts, LinearLayout layout);

// At least one expert, the parts of each valid as above and like those of the first in number, shapes and types.
absl::Status ValidateExperts(std::span<const std::vector<TensorView>> experts, LinearLayout layout);

// The two shapes of Ops::LoadMlaUp, a type that can be dequantised, whole blocks per row and exactly the bytes that the
// shape needs. The error names the tensor.
absl::Status ValidateMlaUp(const TensorView& key_up, const TensorView& value_up, const Mla& heads);

// Positive counts, block_size a multiple of 16, and a size in bytes that fits int64.
absl::Status ValidateKvCacheShape(const KvCacheShape& shape);

}  // namespace sluice
