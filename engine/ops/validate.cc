#include "engine/ops/validate.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/dequantize.h"
#include "engine/base/status_macros.h"
#include "engine/base/tensor_type.h"

namespace sluice {

int32_t KvDTypeBytes(KvDType dtype) {
  switch (dtype) {
    case KvDType::kF32:
      return 4;
    case KvDType::kF16:
    case KvDType::kBF16:
      return 2;
    case KvDType::kF8E4M3:
      return 1;
  }
  return 0;
}

size_t KvCacheShape::StorageOwner(size_t layer) const {
  if (layers[layer].storage < 0) return layer;
  const auto owner = std::find_if(layers.begin(), layers.end(),
                                  [&](const KvLayerShape& other) { return other.storage == layers[layer].storage; });
  return size_t(owner - layers.begin());
}

int64_t KvCacheShape::bytes() const {
  int64_t values = 0;
  for (size_t i = 0; i < layers.size(); ++i) {
    const KvLayerShape& layer = layers[i];
    if (StorageOwner(i) == i) values += int64_t{layer.num_kv_heads} * (layer.head_dim + layer.value_head_dim);
  }
  return values * num_blocks * block_size * KvDTypeBytes(dtype);
}

absl::Status ValidateLinearParts(std::span<const TensorView> parts, LinearLayout layout) {
  if (parts.empty()) return absl::InvalidArgumentError("a linear weight needs at least one tensor");
  for (const TensorView& part : parts) {
    const auto fail = [&](auto&&... what) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor '", part.name, "' [", absl::StrJoin(part.shape, ", "), "]: ", what...));
    };
    if (part.shape.size() != 2 || part.shape[0] <= 0 || part.shape[1] <= 0) {
      return fail("a linear weight has two positive dimensions [out, in]");
    }
    if (part.shape[1] != parts[0].shape.back()) {
      return fail("has ", part.shape[1], " input features, but '", parts[0].name, "' beside it has ",
                  parts[0].shape.back());
    }
    if (!CanDequantize(part.type)) return fail("type ", TensorTypeName(part.type), " cannot hold weights");
    const int block = GetTensorTypeInfo(part.type).block_elems;
    if (part.shape[1] % block != 0) {
      return fail("a row of ", TensorTypeName(part.type), " is a multiple of ", block, " elements");
    }
    const int64_t want = part.shape[0] * TensorBytes(part.type, part.shape[1]);
    if (int64_t(part.data.size()) != want) return fail("holds ", part.data.size(), " bytes, its shape needs ", want);
  }
  if (layout == LinearLayout::kGateUp && (parts.size() != 2 || parts[0].shape != parts[1].shape)) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor '", parts[0].name, "': gate and up are two tensors of one shape"));
  }
  return absl::OkStatus();
}

absl::Status ValidateExperts(std::span<const std::vector<TensorView>> experts, LinearLayout layout) {
  if (experts.empty()) return absl::InvalidArgumentError("a mixture of experts needs at least one expert");
  const std::vector<TensorView>& first = experts[0];
  for (const std::vector<TensorView>& parts : experts) {
    SLUICE_RETURN_IF_ERROR(ValidateLinearParts(parts, layout));
    if (parts.size() != first.size()) {
      return absl::InvalidArgumentError(absl::StrCat("expert tensor '", parts[0].name, "' is one of ", parts.size(),
                                                     ", but '", first[0].name, "' one of ", first.size()));
    }
    for (size_t i = 0; i < parts.size(); ++i) {
      if (parts[i].shape == first[i].shape && parts[i].type == first[i].type) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("expert tensor '", parts[i].name, "' is ", TensorTypeName(parts[i].type), " [",
                       absl::StrJoin(parts[i].shape, ", "), "], expected ", TensorTypeName(first[i].type), " [",
                       absl::StrJoin(first[i].shape, ", "), "] as in '", first[i].name, "'"));
    }
  }
  return absl::OkStatus();
}

absl::Status ValidateMlaUp(const TensorView& key_up, const TensorView& value_up, const Mla& heads) {
  if (heads.num_heads <= 0 || heads.q_lora_rank.value_or(1) <= 0 || heads.kv_lora_rank <= 0 ||
      heads.qk_nope_head_dim <= 0 || heads.qk_rope_head_dim <= 0 || heads.v_head_dim <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("latent attention: num_heads ", heads.num_heads, ", q_lora_rank ",
                     heads.q_lora_rank.has_value() ? absl::StrCat(*heads.q_lora_rank) : "none", ", kv_lora_rank ",
                     heads.kv_lora_rank, ", qk_nope_head_dim ", heads.qk_nope_head_dim, ", qk_rope_head_dim ",
                     heads.qk_rope_head_dim, ", v_head_dim ", heads.v_head_dim, "; must be positive"));
  }
  const auto check = [&](const TensorView& up, int32_t width) {
    const auto fail = [&](auto&&... what) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor '", up.name, "' [", absl::StrJoin(up.shape, ", "), "]: ", what...));
    };
    if (up.shape != std::vector<int64_t>{heads.num_heads, width, heads.kv_lora_rank}) {
      return fail("expected [", heads.num_heads, ", ", width, ", ", heads.kv_lora_rank, "]");
    }
    if (!CanDequantize(up.type)) return fail("type ", TensorTypeName(up.type), " cannot hold weights");
    const int block = GetTensorTypeInfo(up.type).block_elems;
    if (heads.kv_lora_rank % block != 0) {
      return fail("a row of ", TensorTypeName(up.type), " is a multiple of ", block, " elements");
    }
    const int64_t want = int64_t{heads.num_heads} * width * TensorBytes(up.type, heads.kv_lora_rank);
    if (int64_t(up.data.size()) != want) return fail("holds ", up.data.size(), " bytes, its shape needs ", want);
    return absl::OkStatus();
  };
  if (const absl::Status status = check(key_up, heads.qk_nope_head_dim); !status.ok()) return status;
  return check(value_up, heads.v_head_dim);
}

absl::Status ValidateKvCacheShape(const KvCacheShape& shape) {
  if (shape.layers.empty()) return absl::InvalidArgumentError("a KV cache needs at least one layer");
  if (shape.num_blocks <= 0) {
    return absl::InvalidArgumentError(absl::StrCat("KV cache: num_blocks is ", shape.num_blocks, ", must be positive"));
  }
  if (shape.block_size <= 0 || shape.block_size % 16 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("KV cache: block_size is ", shape.block_size, ", must be a positive multiple of 16"));
  }
  double bytes = 0;
  for (size_t i = 0; i < shape.layers.size(); ++i) {
    const KvLayerShape& layer = shape.layers[i];
    if (layer.num_kv_heads <= 0 || layer.head_dim <= 0 || layer.value_head_dim < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("KV cache: a layer has num_kv_heads ", layer.num_kv_heads, ", head_dim ", layer.head_dim,
                       ", value_head_dim ", layer.value_head_dim, "; must be positive, and the last not negative"));
    }
    const size_t owner = shape.StorageOwner(i);
    const KvLayerShape& other = shape.layers[owner];
    if (layer.num_kv_heads != other.num_kv_heads || layer.head_dim != other.head_dim ||
        layer.value_head_dim != other.value_head_dim) {
      return absl::InvalidArgumentError(
          absl::StrCat("KV cache: layers ", owner, " and ", i, " share a storage, but their shapes differ"));
    }
    if (owner != i) continue;
    bytes += double(layer.num_kv_heads) * (double(layer.head_dim) + layer.value_head_dim) * shape.num_blocks *
             shape.block_size * KvDTypeBytes(shape.dtype);
  }
  if (bytes > 0x1p60) return absl::ResourceExhaustedError(absl::StrCat("KV cache: ", bytes, " bytes"));
  return absl::OkStatus();
}

}  // namespace sluice
