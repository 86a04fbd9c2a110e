// Which tensors a model consists of, by meaning and shape. The spec alone decides; what a file calls them is the
// business of the architecture files (tensor_naming.h).
#pragma once

#include <cstdint>
#include <vector>

#include "engine/model/spec.h"

namespace sluice {

enum class TensorRole : uint8_t {
  // Once per model.
  kTokenEmbedding,
  kPositionEmbedding,
  kFinalNorm,
  kFinalNormBias,
  kOutputHead,

  // Once per layer.
  kPreAttnNorm,
  kPreAttnNormBias,
  kPostAttnNorm,
  kPostAttnNormBias,
  kPreFfnNorm,
  kPreFfnNormBias,
  kPostFfnNorm,
  kPostFfnNormBias,

  kQ,
  kK,
  kV,
  kO,
  kQBias,
  kKBias,
  kVBias,
  kOBias,
  kQNorm,
  kKNorm,
  kSinks,

  // Multi-head latent attention; without q_lora_rank the queries are kQ.
  kQDown,  // x -> q latent
  kQLatentNorm,
  kQUp,     // q latent -> per head [nope | rope]
  kKvDown,  // x -> [kv latent | shared rope key]
  kKvLatentNorm,
  kKeyUp,    // kv latent -> the keys' part without RoPE; a leading axis of num_heads
  kValueUp,  // kv latent -> values; a leading axis of num_heads

  kGate,
  kUp,
  kDown,
  kGateBias,
  kUpBias,
  kDownBias,

  // Mixture of experts; tensors of the experts have a leading axis of num_experts.
  kRouter,
  kRouterBias,
  kSelectionBias,
  kExpertGate,
  kExpertUp,
  kExpertDown,
  kExpertGateBias,
  kExpertUpBias,
  kExpertDownBias,
  kSharedGate,
  kSharedUp,
  kSharedDown,
};

struct ExpectedTensor {
  TensorRole role;
  int32_t layer = -1;          // -1: of the whole model
  std::vector<int64_t> shape;  // outermost first; a linear weight is [out, in] (tensor_form.h)

  int64_t num_elements() const;
};

// Every tensor that `spec` calls for, each once, in the order of the forward pass. A tied output head is not listed.
// REQUIRES: ValidateModelSpec(spec) is OK.
std::vector<ExpectedTensor> ExpectedTensors(const ModelSpec& spec);

}  // namespace sluice
