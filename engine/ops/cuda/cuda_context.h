// What the operations of one CudaOps share: the device, the step's arrays and scratch memory; and the GPU's versions of
// the opaque types of ops.h.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "engine/ops/cuda/cuda_weights.h"
#include "engine/ops/cuda/device_buffer.h"
#include "engine/ops/cuda/gemm_route.h"
#include "engine/ops/cuda/kernels/norm.h"
#include "engine/ops/cuda/kernels/types.h"
#include "engine/ops/cuda/mla_expansion.h"
#include "engine/ops/cuda/step_buffers.h"
#include "engine/ops/ops.h"

namespace sluice {

// Rows of activations: the residual stream in f32, what GEMMs and attention read in the device's element.
class CudaActivations : public Activations {
 public:
  CudaActivations(DeviceBuffer data, cuda::Element element, int64_t rows, int64_t cols)
      : data_(std::move(data)), element_(element), rows_(rows), cols_(cols) {}
  int64_t rows() const override { return rows_; }
  int64_t cols() const override { return cols_; }
  cuda::Element element() const { return element_; }
  void* data() const { return data_.data(); }

 private:
  DeviceBuffer data_;
  cuda::Element element_;
  int64_t rows_, cols_;
};

inline void* DataOf(const Activations* a) { return static_cast<const CudaActivations*>(a)->data(); }
// The residual stream.
inline float* ResidualOf(const Activations* x) { return static_cast<float*>(DataOf(x)); }

class CudaKvCache : public KvCache {
 public:
  // Errors: ValidateKvCacheShape, and Device::Allocate.
  static absl::StatusOr<std::unique_ptr<CudaKvCache>> Create(const KvCacheShape& shape, Device* device);
  const KvCacheShape& shape() const override { return shape_; }
  const cuda::PagedKv& layer(int32_t index) const { return layers_[static_cast<size_t>(index)]; }

 private:
  explicit CudaKvCache(const KvCacheShape& shape) : shape_(shape) {}
  KvCacheShape shape_;
  std::vector<DeviceBuffer> storage_;
  std::vector<cuda::PagedKv> layers_;
};

inline const cuda::PagedKv& LayerOf(const KvCache* kv, int32_t layer) {
  return static_cast<const CudaKvCache*>(kv)->layer(layer);
}

// Names of scratch memory: what is alive at the same time has different names.
enum class Scratch : uint8_t {
  kNormed,            // input of a layer's first product
  kNormedF32,         // the same in f32
  kWide,              // f32 result of a projection that another kernel finishes
  kHidden,            // input of a feed-forward layer's second product
  kShared,            // f32 result of the shared expert
  kPlaces,            // f32 results of the experts
  kSum,               // f32 sum over experts
  kQueryLatent,       // queries in the latent space, and their inputs
  kOutLatent,         // attention results in the latent space
  kLatents,           // of whole contexts, out of the cache
  kExpandedProducts,  // keys without rope and values of their tokens
  kExpandedKv,        // the same as a paged cache
  kExpandedTables,    // its block tables
  kRoute,             // RouteArrays and the router's logits
  kPartials,          // of attention
  kLogits,
  kPlainWeights,      // of a product by the library
  kWideProduct,       // its f32 result that another kernel finishes
};

class CudaContext {
  const std::unique_ptr<Device> device_;  // first, so that it goes last

 public:
  CudaContext(std::unique_ptr<Device> device, cuda::Element element)
      : device_(std::move(device)), step(device_.get()), element_(element) {}

  Device* device() const { return device_.get(); }
  cuda::Stream stream() const { return device_->stream(); }
  cuda::Element element() const { return element_; }
  int64_t element_bytes() const { return cuda::ElementBytes(element_); }
  int32_t num_tokens() const { return step.step().num_tokens; }

  // Memory under a name, at least `bytes`, allocated when first asked for, which is in CudaOps::Reserve: an operation
  // asks for what max_tokens rows need, whatever the step. Null after an error, which status() then holds; kernels are
  // not launched then.
  void* Get(Scratch name, int64_t bytes);
  template <typename T>
  T* Get(Scratch name, int64_t count) {
    return static_cast<T*>(Get(name, count * static_cast<int64_t>(sizeof(T))));
  }
  // [max_tokens, cols] of the device's element.
  void* Rows(Scratch name, int64_t cols) { return Get(name, max_tokens * cols * element_bytes()); }
  float* RowsF32(Scratch name, int64_t cols) { return Get<float>(name, max_tokens * cols); }

  // That a name has now.
  int64_t BytesOf(Scratch name) const {
    const auto found = scratch_.find(name);
    return found != scratch_.end() ? found->second.bytes() : 0;
  }

  // Counts the times that scratch memory has moved: what holds addresses of it is then out of date.
  int64_t num_moves() const { return num_moves_; }

  // The first error of an operation, none of which can return one; Sample does.
  const absl::Status& status() const { return status_; }
  void Fail(absl::Status status) {
    if (status_.ok()) status_ = std::move(status);
  }

  StepBuffers step;
  GemmRoute route;
  MlaExpansion expansion;
  int32_t max_tokens = 0;  // StepLimits, from Reserve
  int32_t max_seqs = 0;
  int32_t max_logits = 0;
  int32_t vocab_size = 0;
  int64_t max_context_tokens = 0;

 private:
  const cuda::Element element_;
  std::map<Scratch, DeviceBuffer> scratch_;
  int64_t num_moves_ = 0;
  absl::Status status_;
};

inline cuda::NormWeightsView ViewOf(const NormArgs& norm) {
  return {norm.params, DataOf(norm.weight), DataOf(norm.bias)};
}

}  // namespace sluice
