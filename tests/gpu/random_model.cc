#include "tests/gpu/random_model.h"

#include <algorithm>

#include "engine/model/tensor_roles.h"
#include "tests/model/find_tensor_name.h"
#include "tests/model/toy_model.h"

namespace sluice::cuda_testing {
namespace {

// Tensors begin at different places of the pool, so that a layer's matrices are not one another.
constexpr int64_t kPlaces = 1 << 20;

// Values of either sign between 2^-6 and 2^-5: neither activations nor logits run away.
void Fill(std::vector<uint16_t>* pool) {
  uint64_t x = 0x9e3779b97f4a7c15u;
  for (uint16_t& value : *pool) {
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    value = static_cast<uint16_t>((x >> 48 & 0x807f) | 0x3c80);
  }
}

absl::Span<const uint8_t> Bytes(const void* data, int64_t size) {
  return {static_cast<const uint8_t*>(data), static_cast<size_t>(size)};
}

}  // namespace

RandomModel MakeRandomModel(const ModelSpec& spec) {
  const std::vector<ExpectedTensor> expected = ExpectedTensors(spec);
  int64_t largest = 0, longest = 0;
  for (const ExpectedTensor& tensor : expected) {
    int64_t& most = tensor.shape.size() == 1 ? longest : largest;
    most = std::max(most, tensor.num_elements());
  }
  RandomModel model;
  model.pool.resize(static_cast<size_t>(largest + kPlaces));
  model.ones.assign(static_cast<size_t>(longest), 1.0f);
  Fill(&model.pool);
  int64_t place = 0;
  for (const ExpectedTensor& tensor : expected) {
    TensorView view;
    view.name = *FindTensorName(testing::ToyTensorNames(), tensor.role, tensor.layer);
    view.shape = tensor.shape;
    if (tensor.shape.size() == 1) {
      view.data = Bytes(model.ones.data(), tensor.num_elements() * 4);
    } else {
      view.type = TensorType::kBF16;
      view.data = Bytes(model.pool.data() + place, tensor.num_elements() * 2);
      place = (place + 77'773) % kPlaces;
    }
    model.tensors.push_back(std::move(view));
  }
  return model;
}

}  // namespace sluice::cuda_testing
