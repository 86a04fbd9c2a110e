#include "engine/ops/cuda/cuda_context.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/ops/validate.h"

namespace sluice {

void* CudaContext::Get(Scratch name, int64_t bytes) {
  if (!status_.ok()) return nullptr;
  DeviceBuffer& buffer = scratch_[name];
  if (buffer.bytes() < bytes) {
    // Kernels that are still running may use what is replaced.
    absl::Status status = device_->Synchronize();
    if (status.ok()) {
      ++num_moves_;
      buffer = DeviceBuffer();
      absl::StatusOr<DeviceBuffer> larger = DeviceBuffer::Create(device_.get(), bytes);
      status = larger.status();
      if (larger.ok()) buffer = *std::move(larger);
    }
    Fail(std::move(status));
    if (!status_.ok()) return nullptr;
  }
  return buffer.data();
}

namespace {

cuda::KvElement KvElementOf(KvDType dtype) {
  switch (dtype) {
    case KvDType::kF32:
      return cuda::KvElement::kF32;
    case KvDType::kF16:
      return cuda::KvElement::kF16;
    case KvDType::kBF16:
      return cuda::KvElement::kBF16;
    case KvDType::kF8E4M3:
      return cuda::KvElement::kF8E4M3;
  }
  return cuda::KvElement::kF32;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaKvCache>> CudaKvCache::Create(const KvCacheShape& shape, Device* device) {
  SLUICE_RETURN_IF_ERROR(ValidateKvCacheShape(shape));
  std::unique_ptr<CudaKvCache> cache(new CudaKvCache(shape));
  for (size_t i = 0; i < shape.layers.size(); ++i) {
    const KvLayerShape& layer = shape.layers[i];
    if (layer.head_dim % 8 != 0 || layer.value_head_dim % 8 != 0) {
      return absl::UnimplementedError(absl::StrCat("heads of ", layer.head_dim, " and ", layer.value_head_dim,
                                                   " values in the KV cache; on a GPU both must be multiples of 8"));
    }
    cuda::PagedKv kv;
    kv.element = KvElementOf(shape.dtype);
    kv.block_size = shape.block_size;
    kv.num_kv_heads = layer.num_kv_heads;
    kv.head_dim = layer.head_dim;
    kv.value_head_dim = layer.value_head_dim;
    if (const size_t owner = shape.StorageOwner(i); owner != i) {
      kv.data = cache->layers_[owner].data;
    } else {
      const int64_t bytes = shape.num_blocks * kv.block_elements() * cuda::KvElementBytes(kv.element);
      SLUICE_ASSIGN_OR_RETURN(DeviceBuffer storage, DeviceBuffer::Create(device, bytes));
      kv.data = storage.data();
      cache->storage_.push_back(std::move(storage));
    }
    cache->layers_.push_back(kv);
  }
  return cache;
}

}  // namespace sluice
