#include "tests/io/safetensors_writer.h"

#include <cstring>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/check.h"
#include "engine/base/float16.h"

namespace sluice {
namespace {

template <typename T>
std::string BytesOf(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}

std::string FloatBytes(TensorType type, float value) {
  if (type == TensorType::kF32) return BytesOf(value);
  if (type == TensorType::kF16) return BytesOf(FloatToF16(value));
  SLUICE_CHECK(type == TensorType::kBF16);
  return BytesOf(FloatToBf16(value));
}

}  // namespace

std::string SafetensorsBytes(absl::string_view header, absl::string_view data, std::optional<uint64_t> length) {
  return absl::StrCat(BytesOf(length.value_or(header.size())), header, data);
}

void SafetensorsWriter::AddTensor(absl::string_view name, TensorType type, const std::vector<int64_t>& shape,
                                  absl::Span<const uint8_t> data) {
  int64_t elements = 1;
  for (int64_t dim : shape) elements *= dim;
  SLUICE_CHECK(TensorBytes(type, elements) == int64_t(data.size()));
  absl::StrAppend(&entries_, entries_.empty() ? "" : ",", "\"", name, R"(":{"dtype":")", TensorTypeName(type),
                  R"(","shape":[)", absl::StrJoin(shape, ","), R"(],"data_offsets":[)", data_.size(), ",",
                  data_.size() + data.size(), "]}");
  data_.append(data.begin(), data.end());
}

void SafetensorsWriter::AddFloats(absl::string_view name, TensorType type, const std::vector<int64_t>& shape,
                                  absl::Span<const float> values) {
  std::string bytes;
  for (float value : values) bytes += FloatBytes(type, value);
  AddTensor(name, type, shape, absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()));
}

std::string SafetensorsWriter::Bytes() const {
  std::string header = absl::StrCat("{", entries_, "}");
  header.append(padding.value_or(header.size() % 2 == 0 ? 1 : 0), ' ');
  return SafetensorsBytes(header, data_);
}

void SafetensorsWriter::WriteTo(const std::string& path) const {
  std::ofstream out(path, std::ios::binary);
  out << Bytes();
  out.close();
  SLUICE_CHECK(out.good());
}

}  // namespace sluice
