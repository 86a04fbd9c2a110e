#include "tests/model/golden_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "engine/base/check.h"
#include "engine/base/float16.h"

namespace sluice::testing {
namespace {

std::filesystem::path ModelsFolder() { return std::filesystem::path(SLUICE_SOURCE_DIR) / "tests/goldens/models"; }

// Reads T after T from the bytes of golden.bin.
template <typename T>
class Values {
 public:
  Values(const std::string& bytes, size_t offset) : bytes_(bytes), offset_(offset) {}
  T Next() {
    SLUICE_CHECK(offset_ + sizeof(T) <= bytes_.size());
    T value;
    std::memcpy(&value, bytes_.data() + offset_, sizeof(T));
    offset_ += sizeof(T);
    return value;
  }

 private:
  const std::string& bytes_;
  size_t offset_;
};

}  // namespace

float LargestDifference(const std::vector<float>& a, const std::vector<float>& b) {
  SLUICE_CHECK(a.size() == b.size());
  float largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const float difference = std::abs(a[i] - b[i]);
    if (std::isnan(difference)) return difference;
    largest = std::max(largest, difference);
  }
  return largest;
}

std::vector<std::string> GoldenNames() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(ModelsFolder())) {
    if (entry.is_directory()) names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

GoldenModel ReadGolden(const std::string& name) {
  const std::filesystem::path folder = ModelsFolder() / name;
  std::ifstream text(folder / "golden.json");
  const nlohmann::json golden = nlohmann::json::parse(text);
  std::ifstream file(folder / "golden.bin", std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};

  GoldenModel model{.name = name, .row = golden["row"], .folder = folder, .max_abs = golden["max_abs"], .sequences = {}};
  const size_t vocab = golden["vocab_size"], d_model = golden["d_model"], layers = golden["num_layers"];
  for (const nlohmann::json& entry : golden["sequences"]) {
    GoldenSequence& sequence = model.sequences.emplace_back();
    sequence.tokens = entry["tokens"].get<std::vector<int32_t>>();
    sequence.state_positions = entry["state_positions"].get<std::vector<int32_t>>();
    Values<float> logits(bytes, entry["logits_offset"]);
    for (size_t row = 0; row < sequence.tokens.size(); ++row) {
      std::generate_n(std::back_inserter(sequence.logits.emplace_back()), vocab, [&] { return logits.Next(); });
    }
    Values<uint16_t> states(bytes, entry["states_offset"]);
    sequence.states.resize(layers);
    for (auto& layer : sequence.states) {
      for (size_t i = 0; i < sequence.state_positions.size(); ++i) {
        std::generate_n(std::back_inserter(layer.emplace_back()), d_model, [&] { return F16ToFloat(states.Next()); });
      }
    }
  }
  return model;
}

}  // namespace sluice::testing
