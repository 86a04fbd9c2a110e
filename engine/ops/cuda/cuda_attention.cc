#include "engine/ops/cuda/cuda_attention.h"

#include <algorithm>
#include <cstddef>
#include <span>

#include "engine/base/check.h"
#include "engine/ops/cuda/cuda_linear.h"
#include "engine/ops/cuda/kernels/gemm.h"
#include "engine/ops/cuda/kernels/mla_expand.h"
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

// One product per head: [num_rows, heads * in] -> [num_rows, heads * out], heads `x_step` and `out_step` apart.
struct HeadsProduct {
  const CudaMlaUp::Half* weights;
  const void* x;
  int64_t x_stride, x_step;
  void* out;
  int64_t out_stride, out_step;
};

void MultiplyHeads(CudaContext& context, int32_t num_rows, const HeadsProduct& product, int32_t first_head,
                   int32_t num_heads) {
  cuda::BatchedGemmArgs args;
  args.each.m = num_rows;
  args.each.x = product.x;
  args.each.x_element = context.element();
  args.each.x_stride = product.x_stride;
  args.each.w = product.weights->first;
  args.each.w.data = product.weights->data.as<std::byte>() + first_head * product.weights->head_bytes;
  args.each.out = product.out;
  args.each.out_element = context.element();
  args.each.out_stride = product.out_stride;
  args.num_batches = num_heads;
  args.x_batch_stride = product.x_step;
  args.w_batch_bytes = product.weights->head_bytes;
  args.out_batch_stride = product.out_step;
  cuda::LaunchBatchedGemm(args, context.stream());
}

// Keys and values of kv.num_kv_heads heads, of the blocks whose latents (with the rope keys) are given, into `kv`.
void ExpandHeads(CudaContext& context, const MlaAttentionArgs& args, int32_t num_blocks, const GemmInput& latents,
                 int32_t first_head, void* products, const cuda::PagedKv& kv) {
  if (num_blocks == 0) return;
  const CudaMlaUp& up = MlaUpOf(args.up);
  const int32_t count = kv.num_kv_heads;
  const int32_t num_rows = num_blocks * cuda::kExpandedBlock, nope = args.heads.qk_nope_head_dim;
  const int64_t head = nope + args.heads.v_head_dim, stride = count * head;
  void* values = static_cast<std::byte*>(products) + nope * context.element_bytes();
  MultiplyHeads(context, num_rows, {&up.key(), latents.data, latents.stride, 0, products, stride, head}, first_head,
                count);
  MultiplyHeads(context, num_rows, {&up.value(), latents.data, latents.stride, 0, values, stride, head}, first_head,
                count);
  cuda::LayOutExpandedArgs layout;
  layout.num_blocks = num_blocks;
  layout.products = products;
  layout.rope_keys =
      static_cast<const std::byte*>(latents.data) + args.heads.kv_lora_rank * context.element_bytes();
  layout.rope_stride = latents.stride;
  layout.qk_nope_head_dim = nope;
  layout.kv = kv;
  cuda::LaunchLayOutExpanded(layout, context.stream());
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
  const QkNormSpec& qk_norm = args.heads.qk_norm;
  post.qk_norm = qk_norm.kind;
  post.norm_after_rope = qk_norm.after_rope;
  post.q_norm = {qk_norm.norm, DataOf(args.q_norm), nullptr};
  post.k_norm = {qk_norm.norm, DataOf(args.k_norm), nullptr};
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
  kernel.step = context.step.step();
  kernel.group = context.step.group(args.kv_group);
  kernel.q = DataOf(args.q);
  kernel.num_heads = args.heads.num_heads;
  kernel.row_heads = args.heads.num_heads;
  kernel.kv = LayerOf(args.kv, args.layer);
  kernel.scale = args.scale;
  kernel.softcap = args.softcap.value_or(0);
  kernel.mask = args.mask;
  kernel.sinks = DataOf(args.sinks);
  kernel.out = DataOf(args.out);
  Launch(context, &kernel, args.heads.value_head_dim, Rows::kAll);
}

void CudaAttention::MlaQkv(CudaContext& context, const MlaQkvArgs& args) {
  const Mla& heads = args.heads;
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
  if (heads.q_lora_rank.has_value()) {
    void* normed = context.Rows(Scratch::kNormed, *heads.q_lora_rank);
    float* q = context.RowsF32(Scratch::kPlaces, q_cols);
    if (normed == nullptr || q == nullptr) return;
    cuda::NormColumnsArgs norm;
    norm.num_rows = context.num_tokens();
    norm.d = *heads.q_lora_rank;
    norm.x = down;
    norm.x_stride = down_cols;
    norm.norm = sluice::ViewOf(args.q_latent_norm);
    norm.y = normed;
    norm.y_element = context.element();
    cuda::LaunchNormColumns(norm, context.stream());
    MultiplyToF32(context, args.q_up, {normed, *heads.q_lora_rank}, nullptr, q);
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
  if (context.expansion.any()) Expanded(context, args);
  if (!context.expansion.any() || !context.expansion.absorbed_runs().empty()) Absorbed(context, args);
}

void CudaAttention::Absorbed(CudaContext& context, const MlaAttentionArgs& args) {
  const Mla& heads = args.heads;
  const CudaMlaUp& up = MlaUpOf(args.up);
  const int64_t latent = heads.kv_lora_rank, q_head = heads.qk_nope_head_dim + heads.qk_rope_head_dim;
  const int64_t q_latent_head = latent + heads.qk_rope_head_dim;
  void* q_latent = context.Rows(Scratch::kQueryLatent, heads.num_heads * q_latent_head);
  void* out_latent = context.Rows(Scratch::kOutLatent, heads.num_heads * latent);
  if (out_latent == nullptr) return;
  const MlaExpansion::Run all = {0, context.num_tokens()};
  const std::span<const MlaExpansion::Run> runs =
      context.expansion.any() ? context.expansion.absorbed_runs() : std::span(&all, 1);
  const auto row = [&](void* rows, int32_t index, int64_t cols) {
    return static_cast<std::byte*>(rows) + index * cols * context.element_bytes();
  };

  for (const MlaExpansion::Run& run : runs) {
    cuda::MlaGatherRopeArgs gather;
    gather.num_tokens = run.count;
    gather.num_heads = heads.num_heads;
    gather.kv_lora_rank = heads.kv_lora_rank;
    gather.qk_nope_head_dim = heads.qk_nope_head_dim;
    gather.qk_rope_head_dim = heads.qk_rope_head_dim;
    gather.q = row(DataOf(args.q), run.first, heads.num_heads * q_head);
    gather.q_latent = row(q_latent, run.first, heads.num_heads * q_latent_head);
    gather.element = context.element();
    MultiplyHeads(context, run.count,
                  {&up.transposed_key(), gather.q, heads.num_heads * q_head, q_head, gather.q_latent,
                   heads.num_heads * q_latent_head, q_latent_head},
                  0, heads.num_heads);
    cuda::LaunchMlaGatherRope(gather, context.stream());
  }

  cuda::AttentionKernelArgs kernel;
  kernel.step = context.step.step();
  if (context.expansion.any()) kernel.step.row_starts = context.step.expanded_ends();
  kernel.group = context.step.group(args.kv_group);
  kernel.q = q_latent;
  kernel.num_heads = heads.num_heads;
  kernel.row_heads = heads.num_heads;
  kernel.kv = LayerOf(args.kv, args.layer);
  kernel.latent_value_dim = heads.kv_lora_rank;
  kernel.scale = args.scale;
  kernel.mask = args.mask;
  kernel.out = out_latent;
  Launch(context, &kernel, heads.kv_lora_rank, Rows::kAbsorbed);

  for (const MlaExpansion::Run& run : runs) {
    MultiplyHeads(context, run.count,
                  {&up.value(), row(out_latent, run.first, heads.num_heads * latent), heads.num_heads * latent, latent,
                   row(DataOf(args.out), run.first, int64_t{heads.num_heads} * heads.v_head_dim),
                   int64_t{heads.num_heads} * heads.v_head_dim, heads.v_head_dim},
                  0, heads.num_heads);
  }
}

void CudaAttention::Expanded(CudaContext& context, const MlaAttentionArgs& args) {
  const Mla& heads = args.heads;
  const MlaExpansion& expansion = context.expansion;
  const MlaExpansion::Room room = expansion.RoomFor(heads.num_heads);
  const int64_t key_dim = heads.qk_nope_head_dim + heads.qk_rope_head_dim;
  const int64_t product_dim = heads.qk_nope_head_dim + heads.v_head_dim, bytes = context.element_bytes();
  cuda::GatherLatentsArgs gather;
  gather.group = context.step.group(args.kv_group);
  gather.kv = LayerOf(args.kv, args.layer);
  gather.context_lens = context.step.step().context_lens;
  gather.first_blocks = context.step.expanded_blocks();
  gather.element = context.element();
  gather.table_stride = room.sequence_blocks;
  gather.latents = context.Get(Scratch::kLatents, room.tokens * gather.kv.head_dim * bytes);
  gather.block_tables =
      context.Get<int32_t>(Scratch::kExpandedTables, int64_t{context.max_seqs} * room.sequence_blocks);
  void* products = context.Get(Scratch::kExpandedProducts, room.token_heads * product_dim * bytes);

  cuda::AttentionKernelArgs kernel;
  kernel.step = context.step.step();
  kernel.step.row_ends = context.step.expanded_ends();
  kernel.group = {nullptr, gather.block_tables, gather.table_stride};
  kernel.row_heads = heads.num_heads;
  kernel.kv = {context.Get(Scratch::kExpandedKv, room.token_heads * (key_dim + heads.v_head_dim) * bytes),
               context.element() == cuda::Element::kF32 ? cuda::KvElement::kF32 : cuda::KvElement::kBF16,
               cuda::kExpandedBlock,
               0,
               static_cast<int32_t>(key_dim),
               heads.v_head_dim};
  kernel.scale = args.scale;
  kernel.mask = args.mask;
  if (kernel.kv.data == nullptr) return;

  for (const MlaExpansion::Pass& pass : expansion.passes()) {
    gather.first_seq = kernel.step.first_seq = pass.first_seq;
    gather.end_seq = kernel.step.end_seq = pass.end_seq;
    gather.longest_blocks = pass.longest_blocks;
    cuda::LaunchGatherLatents(gather, context.stream());
    const int32_t at_once = expansion.HeadsAtOnce(pass, heads.num_heads);
    for (int32_t head = 0; head < heads.num_heads; head += at_once) {
      const int32_t count = std::min(at_once, heads.num_heads - head);
      kernel.num_heads = kernel.kv.num_kv_heads = count;
      ExpandHeads(context, args, pass.num_blocks, {gather.latents, gather.kv.head_dim}, head, products, kernel.kv);
      kernel.q = static_cast<const std::byte*>(DataOf(args.q)) + head * key_dim * bytes;
      kernel.out = static_cast<std::byte*>(DataOf(args.out)) + int64_t{head} * heads.v_head_dim * bytes;
      // A plan is good for one pass, and for all layers if there is no other.
      Launch(context, &kernel, heads.v_head_dim, Rows::kExpanded,
             /*plan_anew=*/expansion.passes().size() > 1 && head == 0);
    }
  }
}

void CudaAttention::Launch(CudaContext& context, cuda::AttentionKernelArgs* args, int32_t value_dim, Rows rows,
                           bool plan_anew) {
  const cuda::AttentionPlan* plan = PlanFor(context, *args, rows, plan_anew);
  if (plan == nullptr) return;
  args->partials =
      context.Get<float>(Scratch::kPartials, cuda::AttentionPartialFloats(plan->limits, args->row_heads, value_dim));
  if (args->partials == nullptr) return;
  args->plan = *plan;
  args->element = context.element();
  args->num_sms = context.device()->num_sms();
  cuda::LaunchAttention(*args, context.stream());
}

const cuda::AttentionPlan* CudaAttention::PlanFor(CudaContext& context, const cuda::AttentionKernelArgs& args,
                                                  Rows rows, bool anew) {
  if (!context.status().ok()) return nullptr;
  const PlanKey key = {args.mask, args.num_heads / args.kv.num_kv_heads, rows};
  const auto found = std::find_if(plans_.begin(), plans_.end(), [&](const auto& plan) { return plan->key == key; });
  auto index = static_cast<size_t>(found - plans_.begin());
  if (found == plans_.end()) {
    const cuda::AttentionLimits limits = {context.max_tokens, context.max_seqs, context.max_context_tokens};
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
  const bool fresh = index >= num_planned_;
  if (fresh) {
    std::swap(plans_[index], plans_[num_planned_]);
    index = num_planned_++;
  }
  const cuda::AttentionPlan& plan = plans_[index]->plan;
  if (fresh || anew) {
    cuda::LaunchPlanAttention(args.step, key.mask, key.rows_per_token, plan, context.stream());
  }
  return &plan;
}

}  // namespace sluice
