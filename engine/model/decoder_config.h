// What most config.json files say in the same words, read once: sizes, heads, norms, RoPE, windows. Families start from
// the spec that ReadDecoderConfig gives and change what is different about them.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/model/config_json.h"
#include "engine/model/rope.h"
#include "engine/model/spec.h"

namespace sluice {

// What the family's class in transformers assumes for keys that are missing. Sizes that every file has are not here.
struct DecoderDefaults {
  absl::string_view architecture;
  int32_t max_position = 2048;
  std::optional<int32_t> num_kv_heads = {};  // none: num_attention_heads; so does a null whatever stands here
  std::optional<int32_t> head_dim = {};      // none: hidden_size / num_attention_heads
  float rms_norm_eps = 1e-6f;
  float rope_theta = 1e4f;
  std::optional<int32_t> original_max_position = {};  // see RopeDefaults
  absl::string_view activation_key = "hidden_act";
  absl::string_view activation = "silu";
  bool tied_embeddings = false;
};

// A plain pre-norm decoder with all layers alike: RMS norms before attention and FFN, grouped-query attention with RoPE
// in half-split layout and full masks, a gated FFN of intermediate_size, no biases. A missing size, a wrong type and
// what is out of range are errors naming file and key.
absl::StatusOr<ModelSpec> ReadDecoderConfig(const ConfigJson& config, const DecoderDefaults& defaults);

// `attention_bias`: of q, k, v and o in all layers.
absl::Status ReadAttentionBias(const ConfigJson& config, bool otherwise, ModelSpec* spec);

absl::StatusOr<ActivationKind> ReadActivation(const ConfigJson& config, absl::string_view key,
                                              absl::string_view otherwise);

// `layer_types`: one per layer, each among `known`. Nothing where the key is missing or null.
absl::StatusOr<std::optional<std::vector<std::string>>> FindLayerTypes(const ConfigJson& config, size_t num_layers,
                                                                       std::initializer_list<absl::string_view> known);

// Which layers slide: those called "sliding_attention" in `layer_types`, or else those that `by_default` says.
// `window` is sliding_window as read; without one, a layer that slides is an error.
absl::Status SetSlidingLayers(const ConfigJson& config, std::optional<int64_t> window,
                              const std::vector<bool>& by_default, ModelSpec* spec);

}  // namespace sluice
