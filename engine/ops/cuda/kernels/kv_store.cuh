// Writing into the paged cache.
#pragma once

#include <cstdint>

#include "engine/ops/cuda/kernels/cuda_language.h"
#include "engine/ops/cuda/kernels/types.h"

namespace sluice::cuda {

// Elements before the key (value) that `head` has at `slot` (PagedKv says how a block is laid out).
__device__ inline int64_t KeyIndex(const PagedKv& kv, int32_t slot, int32_t head) {
  const int32_t shift = 31 - __clz(kv.block_size), within = slot & (kv.block_size - 1);
  return (slot >> shift) * kv.block_elements() + (int64_t{head} * kv.block_size + within) * kv.head_dim;
}
__device__ inline int64_t ValueIndex(const PagedKv& kv, int32_t slot, int32_t head) {
  const int32_t shift = 31 - __clz(kv.block_size), within = slot & (kv.block_size - 1);
  return (slot >> shift) * kv.block_elements() + int64_t{kv.num_kv_heads} * kv.block_size * kv.head_dim +
         (int64_t{head} * kv.block_size + within) * kv.value_head_dim;
}

// f8 saturates; f16 becomes infinite beyond 65504.
__device__ __forceinline__ void StoreKv(const PagedKv& kv, int64_t index, float value) {
  switch (kv.element) {
    case KvElement::kF32:
      static_cast<float*>(kv.data)[index] = value;
      break;
    case KvElement::kF16:
      static_cast<__half*>(kv.data)[index] = __float2half(value);
      break;
    case KvElement::kBF16:
      static_cast<__nv_bfloat16*>(kv.data)[index] = __float2bfloat16(value);
      break;
    case KvElement::kF8E4M3:
      static_cast<__nv_fp8_storage_t*>(kv.data)[index] = __nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E4M3);
      break;
  }
}

}  // namespace sluice::cuda
