#include "tests/model/toy_model.h"

#include <cmath>
#include <cstring>
#include <random>

#include "absl/strings/str_cat.h"
#include "engine/base/check.h"
#include "engine/model/rope.h"
#include "tests/model/find_tensor_name.h"
#include "tests/ops/stored_tensor.h"

namespace sluice::testing {
namespace {

bool IsNormWeight(TensorRole role) {
  switch (role) {
    case TensorRole::kFinalNorm:
    case TensorRole::kPreAttnNorm:
    case TensorRole::kPostAttnNorm:
    case TensorRole::kPreFfnNorm:
    case TensorRole::kPostFfnNorm:
    case TensorRole::kQNorm:
    case TensorRole::kKNorm:
    case TensorRole::kQLatentNorm:
    case TensorRole::kKvLatentNorm:
      return true;
    default:
      return false;
  }
}

bool IsVector(const ExpectedTensor& tensor) {
  switch (tensor.role) {
    case TensorRole::kExpertGateBias:
    case TensorRole::kExpertUpBias:
    case TensorRole::kExpertDownBias:
      return true;
    default:
      return tensor.shape.size() == 1;
  }
}

std::vector<uint8_t> RandomVector(TensorRole role, int64_t n, std::mt19937& rng) {
  std::uniform_real_distribution<float> norm(0.5f, 1.5f), other(-0.3f, 0.3f);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& v : values) v = IsNormWeight(role) ? norm(rng) : other(rng);
  std::vector<uint8_t> bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

TensorType StoredAs(const ExpectedTensor& tensor, TensorType type) {
  return tensor.shape.back() % GetTensorTypeInfo(type).block_elems == 0 ? type : TensorType::kF32;
}

}  // namespace

ModelSpec ToySpec() {
  ModelSpec spec;
  spec.architecture = "toy";
  spec.vocab_size = 96;
  spec.d_model = 64;
  spec.max_position = 128;
  spec.rope_tables.push_back(MakeRopeTable(1e4, 16, {}));
  LayerSpec layer;
  layer.pre_attn = layer.pre_ffn = NormParams{.eps = 1e-5f};
  layer.attention.kind = Gqa{.num_heads = 4, .num_kv_heads = 2, .head_dim = 16, .value_head_dim = 16, .qk_norm = {}};
  layer.attention.rope = RopeSpec{.table = 0, .layout = RopeLayout::kHalfSplit, .num_rotary = 16};
  layer.attention.scale = 0.25f;
  layer.ffn = DenseFfn{.intermediate_size = 96};
  spec.layers.assign(3, layer);
  spec.final_norm = NormParams{.eps = 1e-5f};
  return spec;
}

TensorNaming ToyTensorNames() {
  static const std::vector<std::string>* patterns = [] {
    auto* p = new std::vector<std::string>;
    for (int role = 0; role <= int(TensorRole::kSharedDown); ++role) {
      p->push_back(absl::StrCat("toy.{layer}.", role));
    }
    return p;
  }();
  static const std::vector<TensorName>* names = [] {
    auto* n = new std::vector<TensorName>;
    for (size_t role = 0; role < patterns->size(); ++role) n->push_back({TensorRole(role), (*patterns)[role]});
    return n;
  }();
  return {.names = *names};
}

ToyModel MakeToyModel(const ModelSpec& spec, TensorType type, uint32_t seed) {
  SLUICE_CHECK(ValidateModelSpec(spec).ok());
  ToyModel model;
  model.spec = spec;
  std::mt19937 rng(seed);
  for (const ExpectedTensor& expected : ExpectedTensors(spec)) {
    TensorView view;
    view.name = *FindTensorName(ToyTensorNames(), expected.role, expected.layer);
    view.shape = expected.shape;
    if (IsVector(expected)) {
      model.bytes.push_back(RandomVector(expected.role, expected.num_elements(), rng));
    } else {
      view.type = StoredAs(expected, type);
      const int64_t cols = expected.shape.back();
      model.bytes.push_back(std::move(RandomTensor(view.type, expected.num_elements() / cols, cols, rng).bytes));
    }
    view.data = absl::MakeConstSpan(model.bytes.back());
    std::vector<float>& values = model.values[{expected.role, expected.layer}];
    values.resize(size_t(expected.num_elements()));
    DequantizeRow(view.type, view.data.data(), expected.num_elements(), values.data());
    model.tensors.push_back(std::move(view));
  }
  return model;
}

}  // namespace sluice::testing
