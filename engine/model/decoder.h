// The forward pass, written once: from the rows of a step, over a model's spec and weights and the paged KV cache, to
// logits. What it runs on is Ops' business.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/spec.h"
#include "engine/model/weights.h"
#include "engine/ops/ops.h"

namespace sluice {

struct DecoderOptions {
  StepLimits limits;         // vocab_size and num_kv_groups follow from the spec
  int32_t max_position = 0;  // positions are below this
  int32_t kv_block_size = 16;
  KvDType kv_dtype = KvDType::kF16;
};

// The cache that a model of this spec needs, layer by layer.
KvCacheShape MakeKvCacheShape(const ModelSpec& spec, int32_t num_blocks, int32_t block_size, KvDType dtype);

// One caller at a time. Allocates at creation only.
class Decoder {
 public:
  // Reserves on the device all that steps need, but for the cache. `ops` made the weights and outlives the decoder.
  // Errors of the device are passed on. REQUIRES: ValidateModelSpec(spec) is OK.
  static absl::StatusOr<std::unique_ptr<Decoder>> Create(ModelSpec spec, ModelWeights weights, Ops* ops,
                                                         const DecoderOptions& options);

  const ModelSpec& spec() const { return spec_; }
  const ModelWeights& weights() const { return weights_; }
  const DecoderOptions& options() const { return options_; }

  // Computes the rows of `batch`, writes their K and V into `kv`, and leaves the logits of batch.logits_rows with Ops.
  // REQUIRES: the batch keeps to the options; kv has the shape of MakeKvCacheShape and is the same in every call.
  void Forward(const BatchView& batch, KvCache* kv);

  // Logits of other rows of the step that Forward has just computed: `batch` is the same but for logits_rows.
  void MoreLogits(const BatchView& batch);

  // Ops::WarmUp for steps on `kv`.
  absl::Status WarmUp(KvCache* kv);

 private:
  // What one layer's attention works on; layers of equal width share it.
  struct AttentionBuffers {
    Activations* q = nullptr;    // [max_tokens, num_heads * dimensions of a query]
    Activations* out = nullptr;  // [max_tokens, num_heads * dimensions of a value]
  };

  Decoder(ModelSpec spec, ModelWeights weights, Ops* ops, const DecoderOptions& options);
  absl::Status Allocate();
  absl::StatusOr<Activations*> Buffer(int64_t cols, ActivationsUse use);

  void Layers(KvCache* kv);
  RopeArgs Rope(const RopeSpec& rope) const;
  void Attention(int32_t layer, KvCache* kv);
  void Attend(int32_t layer, const Gqa& gqa, KvCache* kv);
  void Attend(int32_t layer, const Mla& mla, KvCache* kv);
  void Ffn(int32_t layer, const DenseFfn& ffn);
  void Ffn(int32_t layer, const MoeFfn& moe);
  void Logits();

  const ModelSpec spec_;
  const ModelWeights weights_;
  Ops* const ops_;
  const DecoderOptions options_;

  std::vector<std::unique_ptr<RopeTableData>> rope_tables_;
  std::unique_ptr<Activations> x_;  // [max_tokens, d_model] the residual stream
  struct Owned {
    int64_t cols;
    ActivationsUse use;
    std::unique_ptr<Activations> activations;
  };
  std::vector<Owned> owned_;
  std::vector<AttentionBuffers> attention_;  // by layer
};

}  // namespace sluice
