// The table of architectures: what recognises one, how its files become a ModelSpec, what its tensors are called.
// This is the only place that asks which model a file holds; everything after it reads the spec.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/io/gguf.h"
#include "engine/model/config_json.h"
#include "engine/model/spec.h"
#include "engine/model/tensor_naming.h"

namespace sluice {

using SpecFromGguf = absl::StatusOr<ModelSpec> (*)(const Gguf& gguf);
using SpecFromConfig = absl::StatusOr<ModelSpec> (*)(const ConfigJson& config);

// One row. An architecture may lack one of the two kinds of file: its name is empty then and its function null.
struct Architecture {
  absl::string_view gguf_name = {};  // general.architecture
  SpecFromGguf spec_from_gguf = nullptr;
  TensorNaming gguf_tensors = {};
  // Control tokens of a SentencePiece vocabulary take the white space after them, which GGUF has no place for. Not BOS,
  // the unknown and the padding token.
  bool gguf_tokens_strip_right = false;

  absl::string_view config_name = {};  // model_type
  SpecFromConfig spec_from_config = nullptr;
  TensorNaming config_tensors = {};
};

absl::Span<const Architecture> Architectures();

// The row for a file. Errors name the file, its key and the architectures there are: NOT_FOUND or INVALID_ARGUMENT for
// a missing or odd key, UNIMPLEMENTED for an architecture that is not in the table.
absl::StatusOr<const Architecture*> FindArchitecture(const Gguf& gguf);
absl::StatusOr<const Architecture*> FindArchitecture(const ConfigJson& config);

// The validated spec of a file's architecture.
absl::StatusOr<ModelSpec> ReadModelSpec(const Gguf& gguf);
absl::StatusOr<ModelSpec> ReadModelSpec(const ConfigJson& config);
// Of a GGUF file, a config.json or a folder that holds one.
absl::StatusOr<ModelSpec> ReadModelSpec(const std::string& path);

}  // namespace sluice
