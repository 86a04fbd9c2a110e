// A small llama model as a Hugging Face folder.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/io/safetensors_writer.h"
#include "tests/model/toy_model.h"

namespace sluice::testing {

// 2 layers of width 64, 4 query and 2 KV heads of 16, FFN 96, vocabulary 96, tied, context 128.
extern const char kToyConfig[];

struct ToyFolder {
  std::string config = kToyConfig;  // config.json; of an architecture that names its tensors one by one
  TensorType type = TensorType::kBF16;
  int num_shards = 1;                                     // 1: model.safetensors; more: with an index
  std::vector<std::string> without_tensors = {};          // left out
  std::function<void(SafetensorsWriter*)> add = nullptr;  // further tensors, in the last shard
};

// Writes the folder, which exists, and returns the model that it is. Adjacent tensors go to different shards.
ToyModel WriteToyFolder(const std::string& path, const ToyFolder& toy);

}  // namespace sluice::testing
