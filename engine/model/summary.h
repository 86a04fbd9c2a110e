// A model description in the numbers people ask for, as `sluice inspect` prints them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "engine/model/spec.h"

namespace sluice {

struct ModelSummary {
  std::string architecture;
  int32_t num_layers = 0;
  int32_t d_model = 0;
  int32_t vocab_size = 0;
  int32_t max_position = 0;
  // One line per kind of attention or FFN that occurs: "61 x mla: 128 heads, latent 512 + rope 64".
  std::vector<std::string> attention;
  std::vector<std::string> ffn;
  std::vector<std::string> features;  // what is on besides: "layer norms", "rope scaling factor 40"
  // One line per mask: "6 x window 512: 22 layers in 24 places" (model/kv_groups.h).
  std::vector<std::string> kv_groups;
  int64_t num_parameters = 0;
  int64_t num_active_parameters = 0;      // used for one token: only the chosen experts count
  int64_t kv_values_per_token = 0;        // over all layers; times the bytes of a value gives bytes
  int64_t kv_group_values_per_token = 0;  // of one KV group: a block's values for each of its tokens
};

// REQUIRES: ValidateModelSpec(spec) is OK.
ModelSummary SummarizeModel(const ModelSpec& spec);

// "512 B", "320.00 KiB", "2.50 MiB", "40.00 GiB".
std::string FormatBytes(int64_t bytes);
// 134,515,008
std::string FormatCount(int64_t n);

// The whole report, one "name: value" per line. `context_tokens` 0: the trained context.
std::string FormatModelSummary(const ModelSpec& spec, int32_t kv_bytes_per_value, int64_t context_tokens);

}  // namespace sluice
