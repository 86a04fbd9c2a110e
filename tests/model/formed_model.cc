#include "tests/model/formed_model.h"

#include <cstring>

#include "absl/strings/match.h"
#include "tests/model/find_tensor_name.h"

namespace sluice::testing {
namespace {

using enum TensorRole;

bool Leading(TensorRole role) {
  return role == kKeyUp || role == kValueUp || (role >= kExpertGate && role <= kExpertDownBias);
}

struct Part {
  const std::vector<float>* values;  // [count, rows, cols]
  int64_t rows;
};

// The rows of the index-th matrix of every part, in the order of the form.
std::vector<std::vector<float>> Rows(const std::vector<Part>& parts, const TensorForm& form, int64_t index,
                                     int64_t cols) {
  std::vector<std::vector<float>> rows;
  const auto add = [&](const Part& part, int64_t row) {
    const auto begin = part.values->begin() + (index * part.rows + row) * cols;
    rows.emplace_back(begin, begin + cols);
  };
  if (form.rows == TensorRows::kInterleaved) {
    for (int64_t row = 0; row < parts[0].rows; ++row) {
      for (const Part& part : parts) add(part, row);
    }
  } else {
    for (const Part& part : parts) {
      for (int64_t row = 0; row < part.rows; ++row) add(part, row);
    }
  }
  return rows;
}

void Append(const std::vector<std::vector<float>>& rows, const TensorForm& form, std::vector<float>* all) {
  if (!form.transposed) {
    for (const std::vector<float>& row : rows) all->insert(all->end(), row.begin(), row.end());
    return;
  }
  for (size_t col = 0; col < rows[0].size(); ++col) {
    for (const std::vector<float>& row : rows) all->push_back(row[col]);
  }
}

}  // namespace

ModelSpec MoeSpec() {
  ModelSpec spec = ToySpec();
  for (size_t layer = 1; layer < spec.layers.size(); ++layer) {
    MoeFfn moe;
    moe.routing.num_experts = 4;
    moe.routing.num_experts_per_token = 2;
    moe.expert_intermediate_size = 48;
    moe.expert_bias = true;
    spec.layers[layer].ffn = moe;
  }
  return spec;
}

ModelSpec MlaSpec() {
  ModelSpec spec = ToySpec();
  for (LayerSpec& layer : spec.layers) {
    layer.attention.kind = Mla{.num_heads = 4,
                               .q_lora_rank = 24,
                               .kv_lora_rank = 32,
                               .qk_nope_head_dim = 8,
                               .qk_rope_head_dim = 16,
                               .v_head_dim = 12};
  }
  return spec;
}

ModelSpec BiasedSpec() {
  ModelSpec spec = ToySpec();
  for (LayerSpec& layer : spec.layers) {
    layer.attention.q_bias = layer.attention.k_bias = layer.attention.v_bias = true;
    std::get<DenseFfn>(layer.ffn).bias = true;
  }
  return spec;
}

FormedModel::FormedModel(const ToyModel& model, std::vector<TensorName> forms) : names_(std::move(forms)) {
  const size_t num_forms = names_.size();
  for (const ExpectedTensor& expected : ExpectedTensors(model.spec)) {
    shapes_[{expected.role, expected.layer}] = expected.shape;
  }
  for (size_t i = 0; i < num_forms; ++i) {
    bool first = true;
    for (size_t j = 0; j < i; ++j) first = first && names_[j].pattern != names_[i].pattern;
    for (int32_t layer = 0; first && layer < int32_t(model.spec.layers.size()); ++layer) {
      if (shapes_.contains({names_[i].role, layer})) Write(model, names_[i].pattern, layer);
    }
  }
  for (const TensorView& tensor : model.tensors) {
    bool formed = false;
    for (size_t i = 0; i < num_forms; ++i) {
      for (int32_t layer = 0; layer < int32_t(model.spec.layers.size()); ++layer) {
        formed = formed || tensor.name == *FindTensorName(ToyTensorNames(), names_[i].role, layer);
      }
    }
    if (!formed) tensors.push_back(tensor);
  }
  const absl::Span<const TensorName> toy = ToyTensorNames().names;
  names_.insert(names_.end(), toy.begin(), toy.end());
}

void FormedModel::Write(const ToyModel& model, absl::string_view pattern, int32_t layer) {
  std::vector<Part> parts;
  TensorForm form;
  int64_t count = 1, cols = 1, all_rows = 0;
  bool is_matrix = false, leading = false;
  for (const TensorName& name : names_) {
    if (name.pattern != pattern) continue;
    const std::vector<int64_t>& shape = shapes_.at({name.role, layer});
    form = name.form;
    leading = Leading(name.role);
    if (leading) count = shape[0];
    is_matrix = shape.size() == (leading ? 3u : 2u);
    if (is_matrix) cols = shape.back();
    parts.push_back({&model.values.at({name.role, layer}), shape[leading ? 1 : 0]});
    all_rows += parts.back().rows;
  }
  form.transposed = form.transposed && is_matrix;
  std::vector<float> all;
  for (int64_t i = 0; i < count; ++i) Append(Rows(parts, form, i, cols), form, &all);

  std::vector<int64_t> shape{all_rows};
  if (is_matrix) shape = form.transposed ? std::vector{cols, all_rows} : std::vector{all_rows, cols};
  const bool each = absl::StrContains(pattern, "{expert}");
  if (leading && !each) {
    if (absl::StrContains(pattern, "merged")) {
      shape[0] *= count;
    } else {
      shape.insert(shape.begin(), count);
    }
  }
  const size_t per_tensor = all.size() / size_t(each ? count : 1);
  for (int64_t i = 0; i < (each ? count : 1); ++i) {
    bytes_.emplace_back(per_tensor * sizeof(float));
    std::memcpy(bytes_.back().data(), &all[size_t(i) * per_tensor], bytes_.back().size());
    tensors.push_back({ExpandTensorName(pattern, "", layer, each ? int32_t(i) : -1), TensorType::kF32, shape,
                       absl::MakeConstSpan(bytes_.back())});
  }
}

}  // namespace sluice::testing
