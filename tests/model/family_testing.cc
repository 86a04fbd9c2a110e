#include "tests/model/family_testing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "tests/model/find_tensor_name.h"
#include "tests/model/spec_text.h"

namespace sluice::testing {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

std::string ConfigPath(const std::string& name) {
  return std::string(SLUICE_SOURCE_DIR) + "/tests/model/configs/" + name + ".json";
}

}  // namespace

ModelSpec ReadConfig(const std::string& name) {
  absl::StatusOr<ModelSpec> spec = ReadModelSpec(ConfigPath(name));
  EXPECT_TRUE(spec.ok()) << spec.status();
  return spec.ok() ? *std::move(spec) : ModelSpec{};
}

absl::StatusOr<ModelSpec> ReadChanged(const std::string& name, const Json& changes) {
  std::ifstream file(ConfigPath(name));
  Json config = Json::parse(file);
  for (const auto& [pointer, value] : changes.items()) {
    const Json::json_pointer where(pointer);
    if (value == kRemoved) {
      config[where.parent_pointer()].erase(where.back());
    } else {
      config[where] = value;
    }
  }
  absl::StatusOr<ConfigJson> parsed = ConfigJson::Parse(config.dump(), "config.json");
  if (!parsed.ok()) return parsed.status();
  return ReadModelSpec(*parsed);
}

void ExpectError(const absl::StatusOr<ModelSpec>& spec, absl::StatusCode code, const std::string& part) {
  EXPECT_EQ(spec.status().code(), code) << spec.status();
  EXPECT_THAT(std::string(spec.status().message()),
              ::testing::AnyOf(HasSubstr("config.json: "), HasSubstr("f.gguf: ")));
  EXPECT_THAT(std::string(spec.status().message()), HasSubstr(part));
}

void ExpectSameSpec(const ModelSpec& a, const ModelSpec& b) { EXPECT_EQ(SpecText(a), SpecText(b)); }

void ExpectEveryTensorNamed(const ModelSpec& spec, const TensorNaming& naming) {
  std::map<std::string, TensorRole> seen;
  for (const ExpectedTensor& tensor : ExpectedTensors(spec)) {
    const std::optional<std::string> name = FindTensorName(naming, tensor.role, tensor.layer);
    ASSERT_TRUE(name.has_value()) << "role " << int(tensor.role);
    const auto entry = std::find_if(naming.names.begin(), naming.names.end(),
                                    [&](const TensorName& known) { return known.role == tensor.role; });
    const auto [it, fresh] = seen.emplace(*name, tensor.role);
    EXPECT_TRUE(fresh || entry->form.rows != TensorRows::kOwn)
        << *name << " is of roles " << int(it->second) << " and " << int(tensor.role);
  }
}

absl::StatusOr<ModelSpec> ReadGgufSpec(const GgufWriter& keys, const std::vector<TensorOf>& tensors) {
  GgufWriter writer = keys;
  for (const TensorOf& tensor : tensors) {
    int64_t n = 1;
    for (int64_t d : tensor.shape) n *= d;
    std::vector<float> values = tensor.values;
    values.resize(size_t(n));
    writer.AddF32Tensor(tensor.name, tensor.shape, values);
  }
  const std::string bytes = writer.Bytes();
  const absl::StatusOr<Gguf> gguf =
      Gguf::Parse({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, "f.gguf");
  if (!gguf.ok()) return gguf.status();
  return ReadModelSpec(*gguf);
}

}  // namespace sluice::testing
