// The tensors of a model's folder: model.safetensors, or the shards that model.safetensors.index.json names.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "engine/io/model_folder.h"
#include "engine/io/safetensors.h"

namespace sluice {

// Where both are there, the single file wins, as in Hugging Face's libraries. The index must be JSON of `metadata` and
// `weight_map` in which nothing occurs twice; the shards together hold the tensors it names, each in the shard it says,
// and no others. Shards come in the order of their names. NOT_FOUND: no safetensors, or a shard that is not there;
// otherwise the errors of ModelFolder, MappedFile and Safetensors, and INVALID_ARGUMENT for an index that is not true.
absl::StatusOr<std::vector<Safetensors>> OpenSafetensors(const ModelFolder& folder);

}  // namespace sluice
