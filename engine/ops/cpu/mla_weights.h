// The second half of an MLA key-value projection on the CPU, each head's matrices packed for the two forms of
// MlaAttentionArgs.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/ops/cpu/packed_linear.h"
#include "engine/ops/ops.h"

namespace sluice {

class CpuMlaUp : public MlaUpWeights {
 public:
  static absl::StatusOr<std::unique_ptr<CpuMlaUp>> Load(const TensorView& key_up, const TensorView& value_up,
                                                        const Mla& heads, ThreadPool* pool, HugePageArena* arena);

  int64_t resident_bytes() const override;
  int num_heads() const { return static_cast<int>(value_.size()); }

  // latent -> key, latent -> value: [nope, kv_lora] and [v, kv_lora], as stored.
  const PackedLinear& key(int head) const { return key_[static_cast<size_t>(head)]; }
  const PackedLinear& value(int head) const { return value_[static_cast<size_t>(head)]; }
  // query -> latent space: key transposed, [kv_lora, nope], in plain floats that hold the stored weights exactly.
  const PackedLinear& absorb(int head) const { return absorb_[static_cast<size_t>(head)]; }

 private:
  std::vector<PackedLinear> key_, value_, absorb_;
};

}  // namespace sluice
