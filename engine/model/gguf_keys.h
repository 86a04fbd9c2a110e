// The metadata of a GGUF file as an architecture reads it: every key has the architecture's name in front. Errors name
// the file and the whole key.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/io/gguf.h"
#include "engine/model/rope.h"
#include "engine/model/spec.h"

namespace sluice {

class GgufKeys {
 public:
  // `gguf` must outlive this object; `architecture` is a literal.
  GgufKeys(const Gguf& gguf, absl::string_view architecture) : gguf_(gguf), architecture_(architecture) {}

  const Gguf& gguf() const { return gguf_; }
  absl::string_view architecture() const { return architecture_; }
  std::string Key(absl::string_view key) const;  // "llama.block_count"
  bool Has(absl::string_view key) const { return gguf_.Has(Key(key)); }
  bool HasTensor(absl::string_view name) const { return gguf_.FindTensor(name) != nullptr; }

  absl::StatusOr<int32_t> GetInt(absl::string_view key, int32_t min, int32_t max) const;
  absl::StatusOr<int32_t> IntOr(absl::string_view key, int32_t min, int32_t max, int32_t otherwise) const;
  absl::StatusOr<bool> BoolOr(absl::string_view key, bool otherwise) const;
  // Finite numbers above 0.
  absl::StatusOr<float> GetPositive(absl::string_view key) const;
  absl::StatusOr<std::optional<float>> FindPositive(absl::string_view key) const;
  absl::StatusOr<float> PositiveOr(absl::string_view key, float otherwise) const;
  // A number from 1 on that may be written per layer but must be the same in all of them.
  absl::StatusOr<int32_t> SameInAllLayers(absl::string_view key, int64_t num_layers) const;

  // UNIMPLEMENTED: "file: key 'llama.x' <what>".
  absl::Status Unsupported(absl::string_view key, absl::string_view what) const;

 private:
  const Gguf& gguf_;
  const absl::string_view architecture_;
};

// The spec's sizes, with block_count layers that are still empty: embedding_length, context_length, and the vocabulary
// by the rows of token_embd.weight. Tied where there is no output.weight. Refuses attention.causal = false.
absl::StatusOr<ModelSpec> ReadGgufSizes(const GgufKeys& keys);

// attention.head_count, head_count_kv (as many), key_length (embedding_length / head_count), value_length (key_length).
absl::StatusOr<Gqa> ReadHeads(const GgufKeys& keys, int64_t num_layers, int32_t d_model);

// rope.freq_base and rope.scaling.*; longrope where the file has its two lists of factors.
absl::StatusOr<RopeConfig> ReadRopeConfig(const GgufKeys& keys, int32_t max_position);

// Adds the table for the rope.dimension_count leading dimensions of a head, or all `head_dim`, with the divisors of
// rope_freqs.weight where the file has them (how converters write the scaling of Llama 3.1).
absl::StatusOr<RopeSpec> AddRope(const GgufKeys& keys, const RopeConfig& rope, int32_t head_dim, RopeLayout layout,
                                 ModelSpec* spec);

// The spec of a plain pre-norm decoder: RMS norms before attention and FFN, grouped-query attention with RoPE in the
// given layout and full masks, a gated SiLU FFN of feed_forward_length, which may differ between layers; the biases
// that the file has for its first layer. Most families start from here.
absl::StatusOr<ModelSpec> ReadGgufDecoder(const GgufKeys& keys, RopeLayout layout);

// Gives every layer `mask` but those whose index + 1 is a multiple of attention.sliding_window_pattern (`pattern` where
// the file does not say), which stay as they are.
absl::Status SetMasksByPattern(const GgufKeys& keys, const AttentionMask& mask, int32_t pattern, ModelSpec* spec);

// The mixture of experts that expert_count > 0 announces, without its scores: expert_used_count, and
// expert_feed_forward_length or else feed_forward_length. Nothing without one.
absl::StatusOr<std::optional<MoeFfn>> ReadGgufMoe(const GgufKeys& keys, size_t num_layers);

}  // namespace sluice
