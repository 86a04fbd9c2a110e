// Writes safetensors files for tests.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/base/tensor_type.h"

namespace sluice {

// A file of any header and data, taken at their word: for damaged files. `length`: what the file says of its header.
std::string SafetensorsBytes(absl::string_view header, absl::string_view data, std::optional<uint64_t> length = {});

// Tensors come out in the order they were added.
class SafetensorsWriter {
 public:
  // REQUIRES: `data` is as long as type and shape say, and `name` needs no escapes in JSON.
  void AddTensor(absl::string_view name, TensorType type, const std::vector<int64_t>& shape,
                 absl::Span<const uint8_t> data);
  // From numbers, as F32, F16 or BF16.
  void AddFloats(absl::string_view name, TensorType type, const std::vector<int64_t>& shape,
                 absl::Span<const float> values);

  // Spaces at the end of the header. By default there are so many that the data starts at an odd place, which readers
  // must be able to take.
  std::optional<size_t> padding;

  std::string Bytes() const;
  // REQUIRES: the file can be written.
  void WriteTo(const std::string& path) const;

 private:
  std::string entries_;
  std::string data_;
};

}  // namespace sluice
