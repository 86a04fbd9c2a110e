// The paged KV cache in memory. A page is 16 tokens of one KV head in one layer: K transposed, [head_dim][16], then V,
// [16][value_head_dim rounded up to 16]. A block of block_size tokens holds, head after head, block_size / 16 pages.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/ops/cpu/cpu_context.h"

namespace sluice {

class CpuKvCache : public KvCache {
 public:
  // INVALID_ARGUMENT for F8_E4M3, which this device does not compute with.
  static absl::StatusOr<std::unique_ptr<CpuKvCache>> Create(const KvCacheShape& shape, HugePageArena* arena);

  const KvCacheShape& shape() const override { return shape_; }
  int value_bytes() const { return value_bytes_; }
  int value_stride(int layer) const { return layers_[static_cast<size_t>(layer)].value_stride; }
  int64_t page_bytes(int layer) const { return layers_[static_cast<size_t>(layer)].page_bytes; }

  // The page of tokens 16 * page .. 16 * page + 15 of a block.
  uint8_t* page(int layer, int32_t block, int kv_head, int page) const {
    const Layer& l = layers_[static_cast<size_t>(layer)];
    return l.data.get() + ((int64_t{block} * l.num_kv_heads + kv_head) * pages_per_block_ + page) * l.page_bytes;
  }
  int pages_per_block() const { return pages_per_block_; }

  // Stores k[head_dim] or v[value_head_dim] of one head at slot block * block_size + offset.
  void WriteKey(const FloatKernels& floats, int layer, int kv_head, int32_t slot, const float* k) const;
  void WriteValue(const FloatKernels& floats, int layer, int kv_head, int32_t slot, const float* v) const;

 private:
  struct Layer {
    std::shared_ptr<uint8_t> data;  // of the storage, which several layers may share
    int num_kv_heads, head_dim, value_head_dim, value_stride;
    int64_t page_bytes;
  };

  uint8_t* PageOfSlot(int layer, int kv_head, int32_t slot) const;

  KvCacheShape shape_;
  int value_bytes_ = 0, pages_per_block_ = 0;
  std::vector<Layer> layers_;
};

}  // namespace sluice
