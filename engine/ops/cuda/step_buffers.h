// The arrays of a step on the device: put together in pinned memory and sent by one copy. There are two images, so that
// one may be made while the other is on its way.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "engine/ops/cuda/device_buffer.h"
#include "engine/ops/cuda/kernels/types.h"
#include "engine/ops/cuda/mla_expansion.h"
#include "engine/ops/ops.h"

namespace sluice {

// What fixes the places of a step's arrays, and so what a CUDA graph of a step can be replayed for.
struct StepShape {
  int32_t num_tokens = 0;
  int32_t num_seqs = 0;
  int32_t num_logits = 0;
  int32_t block_table_stride = 0;
  auto operator<=>(const StepShape&) const = default;
};

class StepBuffers {
 public:
  explicit StepBuffers(Device* device) : device_(device) {}

  // Sends `batch`, padded to `shape` with rows and sequences that kernels pass over, and what `expansion` says of it.
  // Padding rows of logits_rows are row num_tokens - 1. Errors: the device's. REQUIRES: shape is no smaller than the
  // batch.
  absl::Status Send(const BatchView& batch, const StepShape& shape, const MlaExpansion& expansion);

  // Of the last step sent. The pointers depend on its StepShape and number of groups only, once the largest step has
  // been sent or reserved.
  const cuda::StepArrays& step() const { return step_; }
  const cuda::KvGroupArrays& group(int32_t index) const { return groups_[static_cast<size_t>(index)]; }
  // Of MlaExpansion, [num_seqs]; anything where the step has no such rows.
  const int32_t* expanded_ends() const { return expanded_ends_; }
  const int32_t* expanded_blocks() const { return expanded_blocks_; }
  const int32_t* arrays() const { return arrays_.as<const int32_t>(); }  // all of them
  const int32_t* logits_rows() const { return logits_rows_; }
  int32_t num_logits() const { return shape_.num_logits; }

  // Memory for steps of shapes up to `largest`, of `num_groups` KV groups.
  absl::Status Reserve(const StepShape& largest, int32_t num_groups);

 private:
  absl::Status ReserveInts(int64_t ints);

  struct HostImage {
    DeviceBuffer memory;
    std::unique_ptr<Device::Event> sent;
  };
  Device* const device_;
  std::array<HostImage, 2> images_;
  size_t next_image_ = 0;
  DeviceBuffer arrays_;
  StepShape shape_;
  cuda::StepArrays step_;
  std::vector<cuda::KvGroupArrays> groups_;
  const int32_t* logits_rows_ = nullptr;
  const int32_t* expanded_ends_ = nullptr;
  const int32_t* expanded_blocks_ = nullptr;
};

}  // namespace sluice
