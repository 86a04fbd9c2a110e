#include "tests/model/toy_folder.h"

#include <algorithm>
#include <fstream>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/check.h"
#include "engine/model/config_json.h"
#include "engine/model/registry.h"
#include "tests/model/find_tensor_name.h"

namespace sluice::testing {

const char kToyConfig[] = R"({
  "architectures": ["LlamaForCausalLM"],
  "model_type": "llama",
  "hidden_size": 64,
  "num_hidden_layers": 2,
  "num_attention_heads": 4,
  "num_key_value_heads": 2,
  "intermediate_size": 96,
  "vocab_size": 96,
  "max_position_embeddings": 128,
  "rms_norm_eps": 1e-5,
  "rope_theta": 10000.0,
  "hidden_act": "silu",
  "tie_word_embeddings": true,
  "torch_dtype": "bfloat16",
  "eos_token_id": 2
})";

namespace {

void WriteText(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  out.close();
  SLUICE_CHECK(out.good());
}

}  // namespace

ToyModel WriteToyFolder(const std::string& path, const ToyFolder& toy) {
  WriteText(path + "/config.json", toy.config);
  const absl::StatusOr<ConfigJson> config = ConfigJson::Parse(toy.config, "config.json");
  SLUICE_CHECK(config.ok());
  const absl::StatusOr<ModelSpec> spec = ReadModelSpec(*config);
  const absl::StatusOr<const Architecture*> architecture = FindArchitecture(*config);
  SLUICE_CHECK(spec.ok() && architecture.ok());
  ToyModel model = MakeToyModel(*spec, toy.type, 1);

  std::vector<SafetensorsWriter> shards(size_t(toy.num_shards));
  std::string weight_map;
  size_t next = 0;
  for (const ExpectedTensor& expected : ExpectedTensors(*spec)) {
    const TensorView& tensor = model.tensors[next];
    const std::optional<std::string> name =
        FindTensorName((*architecture)->config_tensors, expected.role, expected.layer);
    SLUICE_CHECK(name.has_value());
    const size_t shard = next++ % shards.size();
    if (std::find(toy.without_tensors.begin(), toy.without_tensors.end(), *name) != toy.without_tensors.end()) continue;
    shards[shard].AddTensor(*name, tensor.type, tensor.shape, tensor.data);
    absl::StrAppendFormat(&weight_map, "%s\"%s\":\"model-%d.safetensors\"", weight_map.empty() ? "" : ",", *name,
                          shard);
  }
  if (toy.add) toy.add(&shards.back());
  if (shards.size() == 1) {
    shards[0].WriteTo(path + "/model.safetensors");
    return model;
  }
  for (size_t i = 0; i < shards.size(); ++i) shards[i].WriteTo(absl::StrCat(path, "/model-", i, ".safetensors"));
  WriteText(path + "/model.safetensors.index.json", absl::StrCat("{\"weight_map\":{", weight_map, "}}"));
  return model;
}

}  // namespace sluice::testing
