// What a model's publisher recommends for sampling, and the tokens that end a generation.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/io/gguf.h"
#include "engine/model/config_json.h"
#include "engine/model/generation_defaults.h"

namespace sluice {

struct GenerationConfig : GenerationDefaults {
  std::vector<int32_t> eos_token_ids;
};

// generation_config.json. Those who read it disagree about `do_sample`:
//
//   file                       transformers         vLLM, SGLang           here
//   do_sample true             values as they are   values as they are     values as they are
//   do_sample missing          greedy, values       values as they are     values as they are: who writes a temperature
//                              unused (a warning)                          means it
//   do_sample false            greedy               temperature 1 and      temperature 0; the other values are not used
//                                                   values as they are     (a warning)
//   top_k 0, -1, 50.0, null    0 off, -1 an error   0 and -1 off           0 and -1 off, 50.0 is 50, null as if missing
//   a value out of range       an error             an error per request   not used (a warning)
//   num_beams, typical_p, ...  used                 not used               not used (a warning where it would matter)
//
// Sampling values never keep a model from being served: what cannot be used is left out, with one line for each file in
// `warnings`. eos_token_id is a number or a list; INVALID_ARGUMENT if it is neither, for then nothing would end.
absl::StatusOr<GenerationConfig> ReadGenerationConfig(const ConfigJson& config, std::vector<std::string>* warnings);

// GGUF's general.sampling.* keys, which llama.cpp's converter copies from generation_config.json whatever do_sample
// says there.
GenerationConfig ReadGenerationConfig(const Gguf& gguf, std::vector<std::string>* warnings);

}  // namespace sluice
