// The operations a model is made of: a dozen coarse ones, each with a reference in plain loops (reference/, the oracle)
// and a fast version per device (cpu/, later cuda/). They are coarse on purpose: what one device fuses into an epilogue
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

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/layer_types.h"
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

// A vector of f32: norm weights, biases, sinks.
class VectorWeights {
 public:
  virtual ~VectorWeights() = default;
  virtual int64_t size() const = 0;
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

// What one GQA layer stores per token: num_kv_heads * (head_dim + value_head_dim) values.
struct KvLayerShape {
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  int32_t value_head_dim = 0;
};

struct KvCacheShape {
  std::vector<KvLayerShape> layers;
  int32_t num_blocks = 0;
  int32_t block_size = 16;  // tokens
  KvDType dtype = KvDType::kF16;
  int64_t bytes() const;
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
};

// ---------------------------------------------------------------- one step

struct KvGroupView {
  std::span<const int32_t> slot_mapping;  // [num_tokens] block * block_size + offset
  std::span<const int32_t> block_tables;  // [num_seqs, stride], -1 where unused
  int32_t block_table_stride = 0;
};

// The step's flat arrays (engine/scheduler/step_plan.h), valid until the next BeginStep.
struct BatchView {
  std::span<const int32_t> token_ids;     // [num_tokens]
  std::span<const int32_t> positions;     // [num_tokens]
  std::span<const int32_t> row_starts;    // [num_seqs + 1]
  std::span<const int32_t> context_lens;  // [num_seqs] tokens in the cache after this step
  std::span<const KvGroupView> kv_groups;
  std::span<const int32_t> logits_rows;  // [num_logits]
};

struct NormArgs {
  NormParams params;
  const VectorWeights* weight = nullptr;  // [d]
  const VectorWeights* bias = nullptr;    // [d], kLayer with bias only
};

// cos/sin for positions 0..max_position-1, already times the attention factor.
class RopeTableData {
 public:
  virtual ~RopeTableData() = default;
};

struct RopeArgs {
  const RopeTableData* table = nullptr;
  RopeLayout layout = RopeLayout::kHalfSplit;
  int32_t num_rotary = 0;
};

struct QkNormArgs {
  QkNormKind kind = QkNormKind::kNone;
  NormParams params;
  const VectorWeights* q_weight = nullptr;  // [head_dim] or [num_heads * head_dim] by kind; none for kL2PerHead
  const VectorWeights* k_weight = nullptr;
  bool after_rope = false;
};

struct GqaShape {
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  int32_t value_head_dim = 0;
};

// q|k|v = [norm](x) * qkv^T + bias; QK-norm; RoPE; optional temperature on q; K and V go to the cache at slot_mapping.
struct QkvArgs {
  const Activations* x = nullptr;  // [num_tokens, d_model]
  std::optional<NormArgs> norm;
  const LinearWeights* qkv = nullptr;   // parts q, k, v
  const VectorWeights* bias = nullptr;  // [q|k|v], zeros where a part has none
  GqaShape heads;
  QkNormArgs qk_norm;
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
  GqaShape heads;
  const KvCache* kv = nullptr;
  int32_t layer = 0;
  int32_t kv_group = 0;
  float scale = 1;
  std::optional<float> softcap;
  AttentionMask mask;
  const VectorWeights* sinks = nullptr;  // [num_heads]
  Activations* out = nullptr;            // [num_tokens, num_heads * value_head_dim]
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

  // ---- load time. Errors: shapes that do not go together, types the device cannot hold, out of memory. Source bytes
  // may be dropped when the call returns.
  virtual absl::StatusOr<std::unique_ptr<LinearWeights>> LoadLinear(std::span<const TensorView> parts,
                                                                    LinearLayout layout) = 0;
  virtual absl::StatusOr<std::unique_ptr<VectorWeights>> LoadVector(std::span<const float> values) = 0;
  virtual absl::StatusOr<std::unique_ptr<RopeTableData>> LoadRope(std::span<const float> inv_freq,
                                                                  float attention_factor, int32_t max_position) = 0;
  virtual absl::StatusOr<std::unique_ptr<Activations>> NewActivations(int64_t rows, int64_t cols) = 0;
  virtual absl::StatusOr<std::unique_ptr<KvCache>> NewKvCache(const KvCacheShape& shape) = 0;
  // Workspace for steps of up to `max_tokens` rows, `max_logits` rows of logits over `vocab_size`.
  virtual absl::Status Reserve(int32_t max_tokens, int32_t max_logits, int32_t vocab_size) = 0;

  // ---- one step: BeginStep, then any of the others in model order
  virtual void BeginStep(const BatchView& batch) = 0;
  virtual void Embed(const LinearWeights& table, float scale, Activations* x) = 0;
  virtual void AddPositions(const LinearWeights& table, Activations* x) = 0;  // learned positions (GPT-2)
  virtual void Qkv(const QkvArgs& args) = 0;
  virtual void Attention(const AttentionArgs& args) = 0;
  virtual void Project(const ProjectArgs& args) = 0;
  virtual void Ffn(const DenseFfnArgs& args) = 0;
  virtual void Logits(const LogitsArgs& args) = 0;
  // Draw and report from the logits of this step. Waits for the device. The returned error is a device fault.
  virtual absl::Status Sample(std::span<const SampleRow> rows, std::span<SampleResult> results) = 0;
  virtual absl::Status Logprobs(std::span<const LogprobRow> rows, std::span<TokenLogprobs> results) = 0;
  // For tests and tools: copies logits row i, or one row of `activations` ([cols] values), to the host.
  virtual absl::Status CopyLogits(int32_t row, std::span<float> out) = 0;
  virtual absl::Status CopyActivations(const Activations& activations, int64_t row, std::span<float> out) = 0;
};

}  // namespace sluice
