#include "engine/ops/cuda/cuda_attention.h"

#include <algorithm>

#include "engine/ops/cuda/cuda_linear.h"
#include "engine/ops/cuda/kernels/gemm.h"
#include "engine/ops/cuda/kernels/qkv.h"

namespace sluice {
namespace {

constexpr int64_t kPlanCounts = 8;  // ints of AttentionPlan::counts

cuda::RopeView ViewOf(const RopeArgs& rope) {
  cuda::RopeView view = static_cast<const CudaRope*>(rope.table)->view();
  view.layout = rope.layout;
  view.num_rotary = rope.num_rotary;
  return view;
}

cuda::NormWeightsView HeadNorm(const QkNormArgs& norm, const VectorWeights* weight) {
  return {norm.params, DataOf(weight), nullptr};
}

// One product per head: [num_tokens, heads * in] -> [num_tokens, heads * out], heads `x_step` and `out_step` apart.
struct HeadsProduct {
  const CudaMlaUp::Half* weights;
  const void* x;
  int64_t x_stride, x_step;
  void* out;
  int64_t out_stride, out_step;
};

void MultiplyHeads(CudaContext& context, const HeadsProduct& product, int32_t num_heads) {
  cuda::BatchedGemmArgs args;
  args.each.m = context.num_tokens();
  args.each.x = product.x;
  args.each.x_element = context.element();
  args.each.x_stride = product.x_stride;
  args.each.w = product.weights->first;
  args.each.out = product.out;
  args.each.out_element = context.element();
  args.each.out_stride = product.out_stride;
  args.num_batches = num_heads;
  args.x_batch_stride = product.x_step;
  args.w_batch_bytes = product.weights->head_bytes;
  args.out_batch_stride = product.out_step;
  cuda::LaunchBatchedGemm(args, context.stream());
}

}  // namespace

void CudaAttention::Qkv(CudaContext& context, const QkvArgs& args) {
  const GemmInput h = NormedInput(context, args.x, args.norm);
  float* qkv = context.RowsF32(Scratch::kWide, args.qkv->out_features());
  if (qkv == nullptr) return;
  MultiplyToF32(context, args.qkv, h, args.bias, qkv);

  cuda::QkvPostArgs post;
  post.step = context.step.step();
  post.group = context.step.group(args.kv_group);
  post.qkv = qkv;
  post.num_heads = args.heads.num_heads;
  post.qk_norm = args.qk_norm.kind;
  post.norm_after_rope = args.qk_norm.after_rope;
  post.q_norm = HeadNorm(args.qk_norm, args.qk_norm.q_weight);
  post.k_norm = HeadNorm(args.qk_norm, args.qk_norm.k_weight);
  if (args.rope.has_value()) post.rope = ViewOf(*args.rope);
  post.has_temperature = args.query_temperature_floor.has_value();
  post.temperature_floor = args.query_temperature_floor.value_or(0);
  post.temperature_coef = args.query_temperature_coef;
  post.kv = LayerOf(args.kv, args.layer);
  post.q = DataOf(args.q);
  post.q_element = context.element();
  cuda::LaunchQkvPost(post, context.stream());
}

void CudaAttention::Attention(CudaContext& context, const AttentionArgs& args) {
  cuda::AttentionKernelArgs kernel;
  kernel.group = context.step.group(args.kv_group);
  kernel.q = DataOf(args.q);
  kernel.num_heads = args.heads.num_heads;
  kernel.kv = LayerOf(args.kv, args.layer);
  kernel.scale = args.scale;
  kernel.softcap = args.softcap.value_or(0);
  kernel.mask = args.mask;
  kernel.sinks = DataOf(args.sinks);
  kernel.out = DataOf(args.out);
  Launch(context, &kernel, args.heads.value_head_dim);
}

void CudaAttention::MlaQkv(CudaContext& context, const MlaQkvArgs& args) {
  const MlaShape& heads = args.heads;
  const GemmInput h = NormedInput(context, args.x, args.norm);
  const int64_t down_cols = args.down->out_features();
  const int64_t latent_cols = heads.kv_lora_rank + heads.qk_rope_head_dim;
  const int64_t q_cols = int64_t{heads.num_heads} * (heads.qk_nope_head_dim + heads.qk_rope_head_dim);
  float* down = context.RowsF32(Scratch::kWide, down_cols);
  if (down == nullptr) return;
  MultiplyToF32(context, args.down, h, args.bias, down);

  cuda::MlaQkvPostArgs post;
  post.q_in = down;
  post.q_in_stride = down_cols;
  if (heads.q_lora_rank > 0) {
    void* normed = context.Rows(Scratch::kNormed, heads.q_lora_rank);
    float* q = context.RowsF32(Scratch::kPlaces, q_cols);
    if (normed == nullptr || q == nullptr) return;
    cuda::NormColumnsArgs norm;
    norm.num_rows = context.num_tokens();
    norm.d = heads.q_lora_rank;
    norm.x = down;
    norm.x_stride = down_cols;
    norm.norm = sluice::ViewOf(args.q_latent_norm);
    norm.y = normed;
    norm.y_element = context.element();
    cuda::LaunchNormColumns(norm, context.stream());
    MultiplyToF32(context, args.q_up, {normed, heads.q_lora_rank}, nullptr, q);
    post.q_in = q;
    post.q_in_stride = q_cols;
  }
  post.step = context.step.step();
  post.group = context.step.group(args.kv_group);
  post.latent = down + (down_cols - latent_cols);
  post.latent_stride = down_cols;
  post.latent_norm = sluice::ViewOf(args.kv_latent_norm);
  post.num_heads = heads.num_heads;
  post.kv_lora_rank = heads.kv_lora_rank;
  post.qk_nope_head_dim = heads.qk_nope_head_dim;
  post.qk_rope_head_dim = heads.qk_rope_head_dim;
  post.rope = ViewOf(args.rope);
  post.kv = LayerOf(args.kv, args.layer);
  post.q = DataOf(args.q);
  post.q_element = context.element();
  cuda::LaunchMlaQkvPost(post, context.stream());
}

void CudaAttention::MlaAttention(CudaContext& context, const MlaAttentionArgs& args) {
  const MlaShape& heads = args.heads;
  const CudaMlaUp& up = MlaUpOf(args.up);
  const int64_t latent = heads.kv_lora_rank, q_head = heads.qk_nope_head_dim + heads.qk_rope_head_dim;
  const int64_t q_latent_head = latent + heads.qk_rope_head_dim;
  void* q_latent = context.Rows(Scratch::kQueryLatent, heads.num_heads * q_latent_head);
  void* out_latent = context.Rows(Scratch::kOutLatent, heads.num_heads * latent);
  if (out_latent == nullptr) return;

  MultiplyHeads(context,
                {&up.key(), DataOf(args.q), heads.num_heads * q_head, q_head, q_latent, heads.num_heads * q_latent_head,
                 q_latent_head},
                heads.num_heads);
  cuda::MlaGatherRopeArgs gather;
  gather.num_tokens = context.num_tokens();
  gather.num_heads = heads.num_heads;
  gather.kv_lora_rank = heads.kv_lora_rank;
  gather.qk_nope_head_dim = heads.qk_nope_head_dim;
  gather.qk_rope_head_dim = heads.qk_rope_head_dim;
  gather.q = DataOf(args.q);
  gather.q_latent = q_latent;
  gather.element = context.element();
  cuda::LaunchMlaGatherRope(gather, context.stream());

  cuda::AttentionKernelArgs kernel;
  kernel.group = context.step.group(args.kv_group);
  kernel.q = q_latent;
  kernel.num_heads = heads.num_heads;
  kernel.kv = LayerOf(args.kv, args.layer);
  kernel.latent_value_dim = heads.kv_lora_rank;
  kernel.scale = args.scale;
  kernel.mask = args.mask;
  kernel.out = out_latent;
  Launch(context, &kernel, heads.kv_lora_rank);

  MultiplyHeads(context,
                {&up.value(), out_latent, heads.num_heads * latent, latent, DataOf(args.out),
                 int64_t{heads.num_heads} * heads.v_head_dim, heads.v_head_dim},
                heads.num_heads);
}

void CudaAttention::Launch(CudaContext& context, cuda::AttentionKernelArgs* args, int32_t value_dim) {
  cuda::AttentionLimits limits;
  limits.max_tokens = context.max_tokens;
  limits.max_seqs = context.max_seqs;
  limits.max_total_context = context.max_context_tokens;
  const cuda::AttentionPlan* plan = PlanFor(context, {args->mask, args->num_heads / args->kv.num_kv_heads}, limits);
  args->partials =
      context.Get<float>(Scratch::kPartials, cuda::AttentionPartialFloats(limits, args->num_heads, value_dim));
  if (plan == nullptr || args->partials == nullptr) return;
  args->step = context.step.step();
  args->plan = *plan;
  args->element = context.element();
  args->num_sms = context.device()->num_sms();
  cuda::LaunchAttention(*args, context.stream());
}

const cuda::AttentionPlan* CudaAttention::PlanFor(CudaContext& context, const PlanKey& key,
                                                  const cuda::AttentionLimits& limits) {
  if (!context.status().ok()) return nullptr;
  const auto found = std::find_if(plans_.begin(), plans_.end(), [&](const auto& plan) { return plan->key == key; });
  auto index = static_cast<size_t>(found - plans_.begin());
  if (found == plans_.end()) {
    auto plan = std::make_unique<Plan>();
    const int64_t ints = kPlanCounts + cuda::AttentionPlanInts(limits);
    absl::StatusOr<DeviceBuffer> memory = DeviceBuffer::Create(context.device(), ints * int64_t{sizeof(int32_t)});
    if (!memory.ok()) {
      context.Fail(memory.status());
      return nullptr;
    }
    plan->key = key;
    plan->memory = *std::move(memory);
    plan->plan = {plan->memory.as<int32_t>(), plan->memory.as<int32_t>() + kPlanCounts, limits};
    plans_.push_back(std::move(plan));
  }
  if (index >= num_planned_) {
    std::swap(plans_[index], plans_[num_planned_]);
    index = num_planned_++;
    cuda::LaunchPlanAttention(context.step.step(), key.mask, key.rows_per_token, plans_[index]->plan, context.stream());
  }
  return &plans_[index]->plan;
}

}  // namespace sluice
