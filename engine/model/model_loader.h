// A model opened, be it a GGUF file or a Hugging Face folder: all that is known of it before its weights go onto a
// device.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/tensor_view.h"
#include "engine/io/mapped_file.h"
#include "engine/model/generation_config.h"
#include "engine/model/spec.h"
#include "engine/model/stored_matrix.h"
#include "engine/model/tensor_naming.h"
#include "engine/model/weights.h"
#include "engine/ops/ops.h"
#include "engine/text/tokenizer.h"

namespace sluice {

// Move-only. The tensors point into the mapped files and must not outlive this object (or its successor by move). All
// else owns what it is made of: a server that has brought the weights onto its device lets go of this object, so that
// nobody who truncates or replaces a file can harm what is served from memory.
struct LoadedModel {
  std::string path;  // as it was given

  ModelSpec spec;
  int64_t num_parameters = 0;

  std::vector<MappedFile> files;         // those that hold tensors
  std::vector<TensorView> tensors;       // all that are in them
  const TensorNaming* naming = nullptr;  // what they are called; of the registry
  Fp8BlockSize fp8_block;                // of tensors that have a factor per block
  std::string weight_type;               // how the files store most weights: "Q4_1"
  int64_t file_bytes = 0;                // of all tensors, as stored

  std::unique_ptr<const Tokenizer> tokenizer;  // null: there is no vocabulary; only token ids can be served
  std::string chat_template;                   // Jinja source; empty if there is none
  GenerationConfig generation;                 // without eos_token_ids, which are part of the next
  std::vector<int32_t> eos_token_ids;          // every token that ends a generation, ascending

  std::vector<std::string> warnings;  // what is odd, left out or not understood; a line each, with the file's name
};

// Opens
//   a GGUF file, and generation_config.json beside it if there is one; or
//   a folder: config.json, safetensors (safetensors_folder.h), and where they are there generation_config.json and the
//   files of a tokenizer (hf_tokenizer.h).
// Everything is read and checked but the tensors' names, shapes and contents. Warnings: keys of config.json that are
// not known and may change what the model computes, sampling defaults that are not used, end tokens that the model
// cannot produce and other things that are left out, and which of several files was taken. Errors name the file and
// what is wrong in it; UNIMPLEMENTED: an architecture, feature or kind of file that is not supported.
absl::StatusOr<LoadedModel> OpenModel(const std::string& path);

// The same, with the warnings in the log, and a line of what was found.
absl::StatusOr<LoadedModel> LoadModel(const std::string& path);

// Whether the tensors are those that the spec calls for, as LoadWeights would find, without a device. What is odd about
// them joins the model's warnings.
absl::Status CheckTensors(LoadedModel* model);

// Brings copies of the weights onto the device, then lets go of the memory that their pages in the file took; they are
// read again from disk if another device is to have them.
absl::StatusOr<ModelWeights> LoadWeights(const LoadedModel& model, Ops* ops);

}  // namespace sluice
