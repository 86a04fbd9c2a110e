// The operations a model is made of: a dozen coarse ones, each with a reference in plain loops (reference/, the oracle)
// and a fast version per device (cpu/, cuda/). They are coarse on purpose: what one device fuses into an epilogue
// another runs as several kernels, and the Decoder need not know.
//
// Rules for every implementation
// - A row's result depends on that row's sequence only, never on the other rows of the step, on chunking or on the
//   number of threads: reduction orders are fixed per row.
// - All floating point accumulates in f32 or better. Nothing allocates in a step once the first steps have run.
// - Arguments are trusted (the loader and the scheduler have checked them); a violated REQUIRES is a CHECK.
// - One caller thread at a time. Objects made by an Ops are used with that Ops only and die before it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/available_memory.h"
#include "engine/base/layer_types.h"
#include "engine/base/numerics.h"
#include "engine/base/rope_table.h"
#include "engine/base/tensor_view.h"
#include "engine/ops/sampling.h"

namespace sluice {

// ---------------------------------------------------------------- resident data, opaque to the caller

// One or more matrices [out_i, in] read together.
class LinearWeights {
 public:
  virtual ~LinearWeights() = default;
  virtual int64_t out_features() const = 0;  // sum of the parts
  virtual int64_t in_features() const = 0;
  virtual int64_t resident_bytes() const = 0;
};

// The same one or two matrices for each of a number of experts.
class ExpertWeights {
 public:
  virtual ~ExpertWeights() = default;
  virtual int32_t num_experts() const = 0;
  virtual int64_t out_features() const = 0;  // of one expert: sum of the parts
  virtual int64_t in_features() const = 0;
  virtual int64_t resident_bytes() const = 0;
};

// The second half of an MLA key-value projection: latent -> key part and value of each head.
class MlaUpWeights {
 public:
  virtual ~MlaUpWeights() = default;
  virtual int64_t resident_bytes() const = 0;
};

// A vector of f32: norm weights, biases, sinks.
class VectorWeights {
 public:
  virtual ~VectorWeights() = default;
  virtual int64_t size() const = 0;
};

// What an activation matrix is for: a device may choose its precision by it.
enum class ActivationsUse : uint8_t {
  kResidual,      // x of every operation
  kQuery,         // q of attention
  kAttentionOut,  // out of attention, in of Project
};

// An activation matrix [rows, cols] in the device's own precision.
class Activations {
 public:
  virtual ~Activations() = default;
  virtual int64_t rows() const = 0;  // capacity
  virtual int64_t cols() const = 0;
};

enum class KvDType : uint8_t { kF32, kF16, kBF16, kF8E4M3 };
int32_t KvDTypeBytes(KvDType dtype);

// What one layer stores per token: num_kv_heads * (head_dim + value_head_dim) values. An MLA layer stores one head of
// kv_lora_rank + qk_rope_head_dim and no value: the first kv_lora_rank values of the key are the value.
struct KvLayerShape {
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  int32_t value_head_dim = 0;
  // Layers with the same storage >= 0 share one piece of memory: their shapes are equal and their KV groups differ, so
  // a block holds tokens of one of them at a time. -1: memory of its own.
  int32_t storage = -1;
};

struct KvCacheShape {
  std::vector<KvLayerShape> layers;
  int32_t num_blocks = 0;
  int32_t block_size = 16;  // tokens
  KvDType dtype = KvDType::kF16;
  int64_t bytes() const;                    // each storage once
  size_t StorageOwner(size_t layer) const;  // the first layer with the storage of `layer`, which may be `layer` itself
};

// The paged cache of all layers. Layout within a block is the device's business.
class KvCache {
 public:
  virtual ~KvCache() = default;
  virtual const KvCacheShape& shape() const = 0;
};

enum class LinearLayout : uint8_t {
  kStacked,  // out rows of the parts one below the other: q|k|v, or a single matrix
  kGateUp,   // two parts of equal shape, gate and up, read by DenseFfn
  kRouter,   // kStacked, for MoeArgs::router: small, and its results decide, so that a device keeps it in f32
};

// ---------------------------------------------------------------- one step

struct KvGroupView {
  std::span<const int32_t> slot_mapping;  // [num_tokens] block * block_size + offset
  std::span<const int32_t> block_tables;  // [num_seqs, stride], -1 where unused
  int32_t block_table_stride = 0;
};

// The step's flat arrays (engine/scheduler/step_plan.h), valid until the next BeginStep.
struct BatchView {
  std::span<const int32_t> token_ids;  // [num_tokens]
  std::span<const int32_t> positions;     // [num_tokens]
  std::span<const int32_t> row_starts;    // [num_seqs + 1]
  std::span<const int32_t> context_lens;  // [num_seqs] tokens in the cache after this step
  std::span<const KvGroupView> kv_groups;
  std::span<const int32_t> logits_rows;  // [num_logits]
  // What of a request the arithmetic depends on (base/numerics.h). [num_tokens] routes, or empty: none has any; [num_seqs]
  // what RopeTables select their frequencies by, may be empty where none asks.
  std::span<const RowRoute> row_routes = {};
  std::span<const int32_t> rope_classes = {};
  std::span<const int32_t> adapters = {};  // [num_seqs], or empty: none has any; no device takes one yet
  // [num_tokens] or empty: where not -1, the token is the one drawn for this row of the last LaunchSample, and
  // token_ids is not looked at. REQUIRES: Ops::launches_async()
  std::span<const int32_t> token_sources = {};
};

// The largest steps there will be, for Ops::Reserve.
struct StepLimits {
  int32_t max_tokens = 0;  // rows of a step
  int32_t max_seqs = 0;
  int32_t max_logits = 0;  // rows of logits asked for at a time
  int32_t vocab_size = 0;
  int32_t max_blocks_per_seq = 0;  // KvGroupView::block_table_stride
  int32_t num_kv_groups = 1;
  int64_t max_context_tokens = 0;  // in the contexts of all sequences of a step together
  int32_t max_logprobs = 0;        // most likely tokens reported for a row
  int32_t max_adjusted = 0;        // logit biases and masked tokens of a row
  bool expands_latents = false;    // some rows have kRouteExpandedLatents
};

// What a KV cache may take.
struct KvMemory {
  int64_t available_bytes = 0;
  bool dedicated = false;  // nobody else needs it, so that there is no reason to leave any
};

struct NormArgs {
  NormParams params;
  const VectorWeights* weight = nullptr;  // [d]
  const VectorWeights* bias = nullptr;    // [d], kLayer with bias only
};

// A RopeTable on the device.
class RopeTableData {
 public:
  virtual ~RopeTableData() = default;
};

struct RopeArgs {
  const RopeTableData* table = nullptr;
  RopeLayout layout = RopeLayout::kHalfSplit;
  int32_t num_rotary = 0;
};

// q|k|v = [norm](x) * qkv^T + bias; QK-norm; RoPE; optional temperature on q; K and V go to the cache at slot_mapping.
struct QkvArgs {
  const Activations* x = nullptr;  // [num_tokens, d_model]
  std::optional<NormArgs> norm;
  const LinearWeights* qkv = nullptr;   // parts q, k, v
  const VectorWeights* bias = nullptr;  // [q|k|v], zeros where a part has none
  Gqa heads;
  const VectorWeights* q_norm = nullptr;  // [head_dim] or [num_heads * head_dim] by heads.qk_norm; none for kL2PerHead
  const VectorWeights* k_norm = nullptr;  // [head_dim] or [num_kv_heads * head_dim], likewise
  std::optional<RopeArgs> rope;
  std::optional<float> query_temperature_floor;  // with query_temperature_coef: see QueryTemperature in model/spec.h
  float query_temperature_coef = 0;
  KvCache* kv = nullptr;
  int32_t layer = 0;  // of kv
  int32_t kv_group = 0;
  Activations* q = nullptr;  // out: [num_tokens, num_heads * head_dim]
};

// Softmax attention of each row over its own sequence's cache, itself included.
// s = softcap(scale * q.k); masked; softmax (with the head's sink in the denominator); times V.
struct AttentionArgs {
  const Activations* q = nullptr;
  Gqa heads;
  const KvCache* kv = nullptr;
  int32_t layer = 0;
  int32_t kv_group = 0;
  float scale = 1;
  std::optional<float> softcap;
  AttentionMask mask;
  const VectorWeights* sinks = nullptr;  // [num_heads]
  Activations* out = nullptr;            // [num_tokens, num_heads * value_head_dim]
};

// h = [norm](x). a|c|k_pe = h * down^T + bias, where a is q_lora_rank wide. q = norm(a) * q_up^T; without q_lora_rank a
// is q itself. Per head q is [nope | rope], its rope part rotated. The cache gets norm(c) | rotated k_pe at slot_mapping.
struct MlaQkvArgs {
  const Activations* x = nullptr;  // [num_tokens, d_model]
  std::optional<NormArgs> norm;
  const LinearWeights* down = nullptr;  // parts: q down (or q), kv down with the shared rope key
  const VectorWeights* bias = nullptr;  // of `down`
  Mla heads;
  NormArgs q_latent_norm;               // with q_lora_rank only
  const LinearWeights* q_up = nullptr;  // [num_heads * (nope + rope), q_lora_rank]
  NormArgs kv_latent_norm;
  RopeArgs rope;
  KvCache* kv = nullptr;
  int32_t layer = 0;
  int32_t kv_group = 0;
  Activations* q = nullptr;  // out: [num_tokens, num_heads * (nope + rope)]
};

// s = scale * (q_nope . k_nope + q_pe . k_pe), masked, softmax, times v, where k_nope|v of a head are `up` times the
// latent. Two forms of the same sum: expanded makes k_nope and v of every key; absorbed maps q_nope through `up` into
// the latent space and the weighted latent through it out again. Rows with kRouteExpandedLatents take the expanded form,
// all others the absorbed one.
struct MlaAttentionArgs {
  const Activations* q = nullptr;
  Mla heads;
  const MlaUpWeights* up = nullptr;
  const KvCache* kv = nullptr;
  int32_t layer = 0;
  int32_t kv_group = 0;
  float scale = 1;
  AttentionMask mask;
  Activations* out = nullptr;  // [num_tokens, num_heads * v_head_dim]
};

// x += [post_norm](in * weight^T + bias)
struct ProjectArgs {
  const Activations* in = nullptr;
  const LinearWeights* weight = nullptr;
  const VectorWeights* bias = nullptr;
  std::optional<NormArgs> post_norm;
  Activations* x = nullptr;
};

// x += [post_norm](down * (act(gate * h) * (up * h)) + bias), h = [norm](x); without a gate act(up * h).
struct DenseFfnArgs {
  std::optional<NormArgs> norm;
  const LinearWeights* gate_up = nullptr;       // LinearLayout::kGateUp if gated, else the single up matrix (kStacked)
  const VectorWeights* gate_up_bias = nullptr;  // [gate|up]
  bool gated = true;
  ActivationKind activation = ActivationKind::kSilu;
  float alpha = 1.702f, limit = 7.0f;  // kSwigluOai
  const LinearWeights* down = nullptr;
  const VectorWeights* down_bias = nullptr;
  std::optional<NormArgs> post_norm;
  Activations* x = nullptr;
};

// h = [norm](x); r = router * h + bias decides (MoeRouting in base/layer_types.h) which experts a row visits and with
// what weights w. x += [post_norm](sum over the chosen experts, ascending by index, of w * expert(h), + shared(h));
// with weight_on_input expert(w * h) instead. An expert is a feed-forward as in DenseFfnArgs, gated.
struct MoeArgs {
  std::optional<NormArgs> norm;
  MoeRouting routing;
  const LinearWeights* router = nullptr;          // [num_experts, d_model]
  const VectorWeights* router_bias = nullptr;     // [num_experts]
  const VectorWeights* selection_bias = nullptr;  // [num_experts] added to the scores for the choice only
  bool weight_on_input = false;
  const ExpertWeights* gate_up = nullptr;       // LinearLayout::kGateUp
  const VectorWeights* gate_up_bias = nullptr;  // [num_experts, gate|up]
  ActivationKind activation = ActivationKind::kSilu;
  float alpha = 1.702f, limit = 7.0f;  // kSwigluOai
  const ExpertWeights* down = nullptr;
  const VectorWeights* down_bias = nullptr;       // [num_experts, d_model]
  const LinearWeights* shared_gate_up = nullptr;  // null: no shared expert
  const LinearWeights* shared_down = nullptr;
  std::optional<NormArgs> post_norm;
  Activations* x = nullptr;
};

// logits[i] = softcap(scale * norm(x[logits_rows[i]]) * head^T), i < num_logits
struct LogitsArgs {
  const Activations* x = nullptr;
  NormArgs norm;
  const LinearWeights* head = nullptr;
  float scale = 1;
  std::optional<float> softcap;
};

class Ops {
 public:
  virtual ~Ops() = default;

  virtual std::string Description() const = 0;  // "cpu, 2 threads, avx512-vnni, int16 activations"
  // StepRunner::DescribeWorkers: any thread, also during a step.
  virtual std::string DescribeWorkers() const { return ""; }

  // ---- load time. Errors: shapes that do not go together, types the device cannot hold, out of memory. Source bytes
  // may be dropped when the call returns. Positions of a step stay below the `max_position` of LoadRope.
  virtual absl::StatusOr<std::unique_ptr<LinearWeights>> LoadLinear(std::span<const TensorView> parts,
                                                                    LinearLayout layout) = 0;
  // `experts`: the parts of each expert, all experts alike in number, shapes and types of their parts.
  virtual absl::StatusOr<std::unique_ptr<ExpertWeights>> LoadExperts(std::span<const std::vector<TensorView>> experts,
                                                                     LinearLayout layout) = 0;
  // [num_heads, qk_nope_head_dim, kv_lora_rank] and [num_heads, v_head_dim, kv_lora_rank].
  virtual absl::StatusOr<std::unique_ptr<MlaUpWeights>> LoadMlaUp(const TensorView& key_up, const TensorView& value_up,
                                                                  const Mla& heads) = 0;
  virtual absl::StatusOr<std::unique_ptr<VectorWeights>> LoadVector(std::span<const float> values) = 0;
  virtual absl::StatusOr<std::unique_ptr<RopeTableData>> LoadRope(const RopeTable& table, int32_t max_position) = 0;
  virtual absl::StatusOr<std::unique_ptr<Activations>> NewActivations(int64_t rows, int64_t cols,
                                                                      ActivationsUse use) = 0;
  virtual absl::StatusOr<std::unique_ptr<KvCache>> NewKvCache(const KvCacheShape& shape) = 0;
  // Workspace for steps within `limits`, once the weights are loaded. A device may call `operations`, which carries out
  // the operations of a step with logits on a cache given to it (a small one with layers as in `kv`), to see what they
  // ask for. RESOURCE_EXHAUSTED with the bytes that were needed and available. Larger steps are right, but may
  // allocate.
  virtual absl::Status Reserve(const StepLimits& limits, const KvCacheShape& kv,
                               absl::FunctionRef<void(KvCache*)> operations) = 0;
  // What is left after that. Until then an upper bound.
  virtual KvMemory MemoryForKv() const { return {AvailableMemoryBytes(), false}; }
  // What `tensor` takes as a weight of the device, at least: too little rather than too much. 0: not known.
  virtual int64_t LeastWeightBytes(const TensorView&) const { return 0; }
  // With the KV cache made: whatever else would make the first steps slower, `operations` being those of Forward.
  virtual absl::Status WarmUp(absl::FunctionRef<void()>) { return absl::OkStatus(); }

  // ---- one step: BeginStep, then any of the others in model order. BeginStep may come again with other logits_rows
  // for the rows just computed; then Logits, Sample and Logprobs follow.
  virtual void BeginStep(const BatchView& batch) = 0;
  // Calls `operations`, which carries out the operations of the step begun, from Embed to Logits. A device may instead
  // replay what it captured of an earlier step of like shape: what `operations` does depends on nothing but whether the
  // step asks for logits.
  virtual void Forward(absl::FunctionRef<void()> operations) { operations(); }
  virtual void Embed(const LinearWeights& table, float scale, Activations* x) = 0;
  virtual void AddPositions(const LinearWeights& table, Activations* x) = 0;  // learned positions (GPT-2)
  virtual void Qkv(const QkvArgs& args) = 0;
  virtual void Attention(const AttentionArgs& args) = 0;
  virtual void Project(const ProjectArgs& args) = 0;
  virtual void MlaQkv(const MlaQkvArgs& args) = 0;
  virtual void MlaAttention(const MlaAttentionArgs& args) = 0;
  virtual void Ffn(const DenseFfnArgs& args) = 0;
  virtual void Moe(const MoeArgs& args) = 0;
  virtual void Logits(const LogitsArgs& args) = 0;
  // Draw and report from the logits of this step. Waits for the device. The returned error is a device fault.
  // REQUIRES for Sample: every LaunchSample has had its TakeSamples
  virtual absl::Status Sample(std::span<const SampleRow> rows, std::span<SampleResult> results) = 0;
  virtual absl::Status Logprobs(std::span<const LogprobRow> rows, std::span<TokenLogprobs> results) = 0;
  // Sample in two halves, for a device that computes while the host goes on: LaunchSample returns at once, what `rows`
  // points to may change; TakeSamples waits for the oldest launch not yet taken and for its step. `results` has as many
  // entries as that had rows; none is allowed. At most two launches are in flight. REQUIRES: launches_async()
  virtual bool launches_async() const { return false; }
  virtual absl::Status LaunchSample(std::span<const SampleRow>) { return absl::UnimplementedError("LaunchSample"); }
  virtual absl::Status TakeSamples(std::span<SampleResult>) { return absl::UnimplementedError("TakeSamples"); }
  // For tests and tools: copies logits row i, or one row of `activations` ([cols] values), to the host.
  virtual absl::Status CopyLogits(int32_t row, std::span<float> out) = 0;
  virtual absl::Status CopyActivations(const Activations& activations, int64_t row, std::span<float> out) = 0;
};

}  // namespace sluice
