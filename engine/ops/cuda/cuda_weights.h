// Weights on the GPU: which of the kernels' formats a file's type becomes, and the GPU's versions of the opaque weight
// types of ops.h.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/tensor_view.h"
#include "engine/ops/cuda/device_buffer.h"
#include "engine/ops/cuda/kernels/qkv.h"
#include "engine/ops/cuda/kernels/types.h"
#include "engine/ops/cuda/kernels/weight_matrix.h"
#include "engine/ops/cuda/weight_upload.h"
#include "engine/ops/ops.h"

namespace sluice {

// Matrices with the same input, of one format each: neighbours of equal format are one matrix.
class CudaLinear : public LinearWeights {
 public:
  struct Piece {
    cuda::WeightMatrix matrix;
    int32_t first_row = 0;
    DeviceBuffer data;
  };

  int64_t out_features() const override { return out_; }
  int64_t in_features() const override { return in_; }
  int64_t resident_bytes() const override;
  const std::vector<Piece>& pieces() const { return pieces_; }
  // Of a matrix that is known to be whole: a table, gate and up, an expert.
  const cuda::WeightMatrix& matrix() const { return pieces_.front().matrix; }

 private:
  friend class WeightLoader;
  std::vector<Piece> pieces_;
  int64_t out_ = 0, in_ = 0;
};

class CudaExperts : public ExpertWeights {
 public:
  int32_t num_experts() const override { return num_experts_; }
  int64_t out_features() const override { return first_.n; }
  int64_t in_features() const override { return first_.k; }
  int64_t resident_bytes() const override { return data_.bytes(); }
  const cuda::WeightMatrix& first() const { return first_; }
  int64_t expert_bytes() const { return expert_bytes_; }

 private:
  friend class WeightLoader;
  DeviceBuffer data_;
  cuda::WeightMatrix first_;  // of expert 0
  int64_t expert_bytes_ = 0;
  int32_t num_experts_ = 0;
};

// Per head [qk_nope_head_dim, kv_lora_rank] and [v_head_dim, kv_lora_rank], which make keys and values of latents (the
// latter of weighted latents, too), and the former transposed, which maps queries into the latent space.
class CudaMlaUp : public MlaUpWeights {
 public:
  struct Half {
    DeviceBuffer data;
    cuda::WeightMatrix first;  // of head 0
    int64_t head_bytes = 0;
  };
  int64_t resident_bytes() const override {
    return key_.data.bytes() + transposed_key_.data.bytes() + value_.data.bytes();
  }
  const Half& key() const { return key_; }
  const Half& transposed_key() const { return transposed_key_; }
  const Half& value() const { return value_; }

 private:
  friend class WeightLoader;
  Half key_, transposed_key_, value_;
};

class CudaVector : public VectorWeights {
 public:
  CudaVector(DeviceBuffer data, int64_t size) : data_(std::move(data)), size_(size) {}
  int64_t size() const override { return size_; }
  const float* data() const { return data_.as<float>(); }

 private:
  DeviceBuffer data_;
  int64_t size_;
};

class CudaRope : public RopeTableData {
 public:
  CudaRope(DeviceBuffer inv_freq, DeviceBuffer long_inv_freq, const cuda::RopeView& view)
      : inv_freq_(std::move(inv_freq)), long_inv_freq_(std::move(long_inv_freq)), view_(view) {}
  // Without layout and num_rotary, which the layer says.
  const cuda::RopeView& view() const { return view_; }

 private:
  DeviceBuffer inv_freq_, long_inv_freq_;
  cuda::RopeView view_;
};

inline const CudaLinear& LinearOf(const LinearWeights* w) { return *static_cast<const CudaLinear*>(w); }
inline const CudaExperts& ExpertsOf(const ExpertWeights* w) { return *static_cast<const CudaExperts*>(w); }
inline const CudaMlaUp& MlaUpOf(const MlaUpWeights* w) { return *static_cast<const CudaMlaUp*>(w); }
inline const float* DataOf(const VectorWeights* v) {
  return v != nullptr ? static_cast<const CudaVector*>(v)->data() : nullptr;
}

// Errors: those of engine/ops/validate.h, UNIMPLEMENTED for shapes that the kernels do not take, RESOURCE_EXHAUSTED.
// What is returned is on its way to the device, in stream order; sources have been read.
class WeightLoader {
 public:
  // kF32 activations: every matrix becomes f32. num_threads pack matrices, the caller's among them.
  WeightLoader(Device* device, cuda::Element activations, int32_t num_threads)
      : device_(device), activations_(activations), upload_(device, num_threads) {}

  absl::StatusOr<std::unique_ptr<CudaLinear>> Linear(std::span<const TensorView> parts, LinearLayout layout);
  absl::StatusOr<std::unique_ptr<CudaExperts>> Experts(std::span<const std::vector<TensorView>> experts,
                                                       LinearLayout layout);
  absl::StatusOr<std::unique_ptr<CudaMlaUp>> MlaUp(const TensorView& key_up, const TensorView& value_up,
                                                   const Mla& heads);
  absl::StatusOr<std::unique_ptr<CudaVector>> Vector(std::span<const float> values);
  absl::StatusOr<std::unique_ptr<CudaRope>> Rope(const RopeTable& table);

  // Once everything is loaded: waits for it, ends the threads.
  absl::Status Finish() { return upload_.Finish(); }

  // What a tensor takes as a weight, padding aside; 0 where its type does not tell.
  int64_t LeastBytes(const TensorView& tensor) const;

  // Bytes on the device beyond those in the file, for types that no kernel reads.
  int64_t widened_bytes() const { return widened_bytes_; }

 private:
  TensorType FormatFor(TensorType type, bool precise) const;
  TensorType CommonFormat(std::span<const TensorView> parts, bool precise) const;
  absl::StatusOr<CudaLinear::Piece> Piece(std::span<const TensorView> parts, TensorType format, bool gated);
  // The matrices of all heads, [n, k] each, or [k, n] if they are to be `transposed`.
  absl::StatusOr<CudaMlaUp::Half> Heads(const TensorView& view, int32_t num_heads, int32_t n, int32_t k, bool transposed);
  // Sends the matrix that `parts` make to `to`.
  absl::Status Pack(std::span<const TensorView> parts, const cuda::WeightMatrix& matrix, std::byte* to);

  Device* const device_;
  const cuda::Element activations_;
  WeightUpload upload_;
  int64_t widened_bytes_ = 0;
};

}  // namespace sluice
