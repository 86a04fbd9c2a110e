// Ops::Qkv, Attention, MlaQkv and MlaAttention on the GPU. MLA absorbed: queries of all heads into the latent space,
// attention over the latents as over one KV head, results out of it again. Expanded (mla_expansion.h says which rows):
// keys and values of whole contexts into a paged cache of their own, attention over that as over any other.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/ops/cuda/cuda_context.h"
#include "engine/ops/cuda/kernels/attention.h"

namespace sluice {

class CudaAttention {
 public:
  // A step's operations begin: plans of earlier steps are out of date.
  void BeginForward() { num_planned_ = 0; }

  void Qkv(CudaContext& context, const QkvArgs& args);
  void Attention(CudaContext& context, const AttentionArgs& args);
  void MlaQkv(CudaContext& context, const MlaQkvArgs& args);
  void MlaAttention(CudaContext& context, const MlaAttentionArgs& args);

 private:
  // Of a step: all of them, or those that take a form of MLA.
  enum class Rows : uint8_t { kAll, kAbsorbed, kExpanded };
  // Layers with the same mask and number of query heads per KV head share the plan of a step.
  struct PlanKey {
    AttentionMask mask;
    int32_t rows_per_token = 0;
    Rows rows = Rows::kAll;
    bool operator==(const PlanKey&) const = default;
  };
  struct Plan {
    PlanKey key;
    DeviceBuffer memory;
    cuda::AttentionPlan plan;
  };

  // The plan for `rows` of args.step, launched if this is the first layer that asks or `again`. Null after an error.
  const cuda::AttentionPlan* PlanFor(CudaContext& context, const cuda::AttentionKernelArgs& args, Rows rows, bool anew);
  void Launch(CudaContext& context, cuda::AttentionKernelArgs* args, int32_t value_dim, Rows rows,
              bool plan_anew = false);
  void Absorbed(CudaContext& context, const MlaAttentionArgs& args);
  void Expanded(CudaContext& context, const MlaAttentionArgs& args);

  // [0, num_planned_) are up to date.
  std::vector<std::unique_ptr<Plan>> plans_;
  size_t num_planned_ = 0;
};

}  // namespace sluice
