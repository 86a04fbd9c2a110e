// A model file opened: all that is known of it before its weights go onto a device.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/io/gguf.h"
#include "engine/model/generation_config.h"
#include "engine/model/registry.h"
#include "engine/model/spec.h"
#include "engine/model/weights.h"
#include "engine/ops/ops.h"
#include "engine/text/tokenizer.h"

namespace sluice {

// Move-only. The tokenizer points into the mapped file, so it must not outlive this object (or its successor by move).
struct LoadedModel {
  LoadedModel(std::string path, Gguf file) : path(std::move(path)), file(std::move(file)) {}

  std::string path;
  Gguf file;
  const Architecture* architecture = nullptr;
  ModelSpec spec;
  int64_t num_parameters = 0;
  std::string weight_type;  // how most weights are stored: "Q4_1"
  int64_t file_bytes = 0;   // of all tensors, as stored

  std::unique_ptr<const Tokenizer> tokenizer;  // null: the file has no vocabulary
  std::string chat_template;                   // Jinja source; empty if there is none
  GenerationConfig generation;                 // without eos_token_ids, which are part of the next
  std::vector<int32_t> eos_token_ids;          // every token that ends a generation, ascending
};

// Opens a GGUF file, and generation_config.json beside it if there is one. Everything is read and checked but the
// tensors' contents. Errors name the file and what is wrong in it; UNIMPLEMENTED: an architecture, feature or kind of
// file that is not supported yet.
absl::StatusOr<LoadedModel> LoadModel(const std::string& path);

// Brings the weights onto the device, then lets go of the memory that their pages in the file took; they are read
// again from disk if another device is to have them.
absl::StatusOr<ModelWeights> LoadWeights(const LoadedModel& model, Ops* ops);

}  // namespace sluice
