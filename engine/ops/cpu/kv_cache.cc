#include "engine/ops/cpu/kv_cache.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "engine/base/float16.h"
#include "engine/base/status_macros.h"
#include "engine/ops/validate.h"

namespace sluice {

absl::StatusOr<std::unique_ptr<CpuKvCache>> CpuKvCache::Create(const KvCacheShape& shape, HugePageArena* arena) {
  SLUICE_RETURN_IF_ERROR(ValidateKvCacheShape(shape));
  if (shape.dtype == KvDType::kF8E4M3) {
    return absl::InvalidArgumentError("KV cache: the CPU holds f32, f16 or bf16, not fp8_e4m3");
  }
  auto cache = std::make_unique<CpuKvCache>();
  cache->shape_ = shape;
  cache->value_bytes_ = KvDTypeBytes(shape.dtype);
  cache->pages_per_block_ = shape.block_size / kPageTokens;
  for (size_t i = 0; i < shape.layers.size(); ++i) {
    if (const size_t owner = shape.StorageOwner(i); owner < i) {
      cache->layers_.push_back(cache->layers_[owner]);
      continue;
    }
    const KvLayerShape& layer = shape.layers[i];
    Layer l{nullptr, layer.num_kv_heads, layer.head_dim, layer.value_head_dim, (layer.value_head_dim + 15) / 16 * 16,
            0};
    l.page_bytes = int64_t{kPageTokens} * (l.head_dim + l.value_stride) * cache->value_bytes_;
    const int64_t bytes = l.page_bytes * cache->pages_per_block_ * l.num_kv_heads * shape.num_blocks;
    l.data = arena->Allocate(static_cast<size_t>(bytes));
    if (l.data == nullptr) {
      return absl::ResourceExhaustedError(absl::StrCat("KV cache: no memory for ", shape.bytes(), " bytes"));
    }
    cache->layers_.push_back(std::move(l));
  }
  return cache;
}

uint8_t* CpuKvCache::PageOfSlot(int layer, int kv_head, int32_t slot) const {
  const int32_t offset = slot % shape_.block_size;
  return page(layer, slot / shape_.block_size, kv_head, offset / kPageTokens);
}

void CpuKvCache::WriteKey(const FloatKernels& floats, int layer, int kv_head, int32_t slot, const float* k) const {
  const int head_dim = layers_[static_cast<size_t>(layer)].head_dim;
  uint8_t* page = PageOfSlot(layer, kv_head, slot);
  const int token = slot % kPageTokens;
  if (shape_.dtype == KvDType::kF32) {
    float* to = reinterpret_cast<float*>(page) + token;
    for (int d = 0; d < head_dim; ++d) to[d * kPageTokens] = k[d];
    return;
  }
  uint16_t* to = reinterpret_cast<uint16_t*>(page) + token;
  if (shape_.dtype == KvDType::kBF16) {
    for (int d = 0; d < head_dim; ++d) to[d * kPageTokens] = FloatToBf16(k[d]);
    return;
  }
  constexpr int kPart = 128;
  uint16_t narrow[kPart];
  for (int d = 0; d < head_dim; d += kPart) {
    const int count = std::min(kPart, head_dim - d);
    floats.to_cache_f16(k + d, count, narrow);
    for (int i = 0; i < count; ++i) to[(d + i) * kPageTokens] = narrow[i];
  }
}

void CpuKvCache::WriteValue(const FloatKernels& floats, int layer, int kv_head, int32_t slot, const float* v) const {
  const Layer& l = layers_[static_cast<size_t>(layer)];
  uint8_t* values = PageOfSlot(layer, kv_head, slot) + int64_t{l.head_dim} * kPageTokens * value_bytes_;
  uint8_t* to = values + int64_t{slot % kPageTokens} * l.value_stride * value_bytes_;
  switch (shape_.dtype) {
    case KvDType::kF32:
      std::memcpy(to, v, static_cast<size_t>(l.value_head_dim) * sizeof(float));
      return;
    case KvDType::kF16:
      return floats.to_cache_f16(v, l.value_head_dim, reinterpret_cast<uint16_t*>(to));
    default:
      for (int i = 0; i < l.value_head_dim; ++i) reinterpret_cast<uint16_t*>(to)[i] = FloatToBf16(v[i]);
  }
}

}  // namespace sluice
