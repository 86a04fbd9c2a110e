// The weights of a model, found by name, checked against the spec's shapes and brought onto a device. Matrices that are
// read together (q|k|v, gate|up) become one.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/base/tensor_view.h"
#include "engine/model/spec.h"
#include "engine/model/stored_matrix.h"
#include "engine/model/tensor_naming.h"
#include "engine/ops/ops.h"

namespace sluice {

// Absent parts are null: a norm the layer does not have, a bias where none of the fused parts has one.
struct NormWeights {
  std::unique_ptr<VectorWeights> weight, bias;
};

// Of a layer with multi-head latent attention.
struct MlaWeights {
  std::unique_ptr<LinearWeights> down;  // parts: q down (or q), kv down with the shared rope key
  std::unique_ptr<VectorWeights> down_bias;
  std::unique_ptr<VectorWeights> q_latent_norm, kv_latent_norm;
  std::unique_ptr<LinearWeights> q_up;
  std::unique_ptr<MlaUpWeights> up;
};

// Of a layer with a mixture of experts.
struct MoeWeights {
  std::unique_ptr<LinearWeights> router;
  std::unique_ptr<VectorWeights> router_bias, selection_bias;
  std::unique_ptr<ExpertWeights> gate_up, down;
  std::unique_ptr<VectorWeights> gate_up_bias, down_bias;  // of all experts
  std::unique_ptr<LinearWeights> shared_gate_up, shared_down;
};

struct LayerWeights {
  NormWeights pre_attn, post_attn, pre_ffn, post_ffn;
  std::unique_ptr<LinearWeights> qkv;       // parts q, k, v
  std::unique_ptr<VectorWeights> qkv_bias;  // zeros where one of the parts has no bias
  std::unique_ptr<VectorWeights> q_norm, k_norm;
  std::unique_ptr<VectorWeights> sinks;
  MlaWeights mla;
  std::unique_ptr<LinearWeights> attn_out;
  std::unique_ptr<VectorWeights> attn_out_bias;
  std::unique_ptr<LinearWeights> gate_up;  // or up alone, where the FFN has no gate
  std::unique_ptr<VectorWeights> gate_up_bias;
  std::unique_ptr<LinearWeights> down;
  std::unique_ptr<VectorWeights> down_bias;
  MoeWeights moe;
};

struct ModelWeights {
  std::unique_ptr<LinearWeights> embedding;
  std::unique_ptr<LinearWeights> positions;  // learned ones
  std::vector<LayerWeights> layers;
  NormWeights final_norm;
  std::unique_ptr<LinearWeights> head;  // null: the embedding

  int64_t resident_bytes = 0;  // of all matrices
};

// Loads what `spec` calls for from `tensors`, whose bytes may go away afterwards. `file` stands for the source in
// errors, which are those of TensorsByRole::Match and ReadMatrix and those of the device. A file is checked as a whole
// before anything is loaded. REQUIRES: ValidateModelSpec(spec) is OK.
absl::StatusOr<ModelWeights> LoadWeights(const ModelSpec& spec, const TensorNaming& naming,
                                         absl::Span<const TensorView> tensors, const std::string& file, Ops* ops,
                                         Fp8BlockSize fp8_block = {});

}  // namespace sluice
