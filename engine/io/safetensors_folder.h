// The tensors of a model's folder: model.safetensors, or the shards that model.safetensors.index.json names.
#pragma once

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/io/model_folder.h"
#include "engine/io/safetensors.h"

namespace sluice {

// The weight_map of an index: tensor -> shard.
using SafetensorsIndex = absl::flat_hash_map<std::string, std::string>;

// The text must be a JSON object of `weight_map` and perhaps `metadata`, in which nothing occurs twice.
// INVALID_ARGUMENT says what is wrong with it; `name` stands for the file. Names of shards are not looked at.
absl::StatusOr<SafetensorsIndex> ParseSafetensorsIndex(absl::string_view text, const std::string& name);

// Where both are there, the single file wins, as in Hugging Face's libraries, and a line in `warnings` says so, unless
// the index names that file only. The shards together hold the tensors that the index names, each in the shard it says,
// and no others. Shards come in the order of their names. NOT_FOUND: no safetensors, or a shard that is not there;
// otherwise the errors of ModelFolder, MappedFile and Safetensors, and INVALID_ARGUMENT for an index that is not true.
absl::StatusOr<std::vector<Safetensors>> OpenSafetensors(const ModelFolder& folder, std::vector<std::string>* warnings);

}  // namespace sluice
