// A model as data. Every architecture is one residual block,
//   x += [post_attn]( attention( [pre_attn](x) ) )
//   x += [post_ffn]( ffn( [pre_ffn](x) ) )
// and every difference between architectures is a field here. Only the architecture files beside this one
// know names of architectures; everything else reads the spec. Optional values are explicit, exclusive choices are
// variants.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "engine/base/layer_types.h"
#include "engine/base/rope_table.h"

namespace sluice {

struct RopeSpec {
  int32_t table = 0;  // index into ModelSpec::rope_tables
  RopeLayout layout = RopeLayout::kHalfSplit;
  int32_t num_rotary = 0;  // leading dimensions of a head that rotate; even
};

// q * (1 + coef * ln(1 + floor((pos + 1) / floor))), after RoPE (Llama 4).
struct QueryTemperature {
  float floor = 8192;
  float coef = 0.1f;
};

struct AttentionSpec {
  std::variant<Gqa, Mla> kind;
  std::optional<RopeSpec> rope;  // none: no positional rotation in this layer
  AttentionMask mask;
  float scale = 0;               // of q.k
  std::optional<float> softcap;  // c * tanh(s / c), before the mask
  std::optional<QueryTemperature> query_temperature;
  bool q_bias = false, k_bias = false, v_bias = false, o_bias = false;
  bool sinks = false;  // one learned logit per query head in the softmax denominator
};

struct FfnActivation {
  ActivationKind kind = ActivationKind::kSilu;
  float alpha = 1.702f;  // kSwigluOai only
  float limit = 7.0f;    // kSwigluOai only
};

// gated: down(act(gate(x)) * up(x)); otherwise down(act(up(x))).
struct DenseFfn {
  int32_t intermediate_size = 0;
  bool gated = true;
  FfnActivation activation = {};
  bool bias = false;
};

struct MoeFfn {
  MoeRouting routing;
  int32_t expert_intermediate_size = 0;
  FfnActivation activation = {};
  bool selection_bias = false;   // added to the scores for the choice only (noaux_tc)
  bool weight_on_input = false;  // an expert sees weight * x instead of having its output weighted (Llama 4)
  bool router_bias = false, expert_bias = false;
  std::optional<int32_t> shared_intermediate_size;  // an expert that every token visits, unweighted
};

struct LayerSpec {
  std::optional<NormParams> pre_attn, post_attn, pre_ffn, post_ffn;
  AttentionSpec attention;
  std::variant<DenseFfn, MoeFfn> ffn;
  int32_t kv_group = 0;  // which block table of a sequence the layer's cache uses (model/kv_groups.h)
};

enum class PositionEmbedding : uint8_t { kNone, kLearned };

struct ModelSpec {
  std::string architecture;  // as the file names it; for people, never to be branched on
  int32_t vocab_size = 0;    // rows of the embedding
  int32_t d_model = 0;
  int32_t max_position = 0;  // context length: as trained, or as far as YaRN stretches it
  int32_t longest_position =
      0;                   // how far RoPE extends it on request; no further than max_position where that is more
  float rope_scaling_factor = 1;  // by how much RoPE's longest wavelengths are stretched; for people
  float embedding_scale = 1;
  PositionEmbedding position_embedding = PositionEmbedding::kNone;
  std::vector<RopeTable> rope_tables;
  std::vector<LayerSpec> layers;
  NormParams final_norm;
  bool tied_embeddings = false;  // the output head is the embedding
  float logit_scale = 1;
  std::optional<float> final_softcap;
};

// Checks everything that a file could get wrong and later code relies on: sizes positive, heads divide, rope even and
// within the head, list lengths, finite positive eps/theta/scale, routing sizes. The message names the field.
absl::Status ValidateModelSpec(const ModelSpec& spec);

// Values (not bytes) of KV cache one token takes in one layer: 2 * kv_heads * head_dim, or kv_lora_rank + rope dim for
// MLA.
int64_t KvValuesPerToken(const LayerSpec& layer);

inline constexpr int32_t kMaxPosition = 1 << 28;  // no context is longer

// The most tokens a sequence can have: max_position, longest_position, or, where the frequencies of every RoPE table
// follow the length of the sequence (DynamicNtkRule), `factor` times the trained context; whichever is most.
int32_t LongestContext(const ModelSpec& spec);

// Bytes of KV cache that queries after `num_tokens` may still reach: window and chunk layers count at most their size.
// A server holds whole blocks, and rows of a step beside them: PeakBlocks in scheduler/kv_blocks.h.
int64_t KvBytes(const ModelSpec& spec, int64_t num_tokens, int32_t bytes_per_value);

// Weights of the model by the spec's shapes; a tied head counts once.
int64_t NumParameters(const ModelSpec& spec);

}  // namespace sluice
