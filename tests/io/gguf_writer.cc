#include "tests/io/gguf_writer.h"

#include <fstream>

#include "absl/strings/str_cat.h"
#include "engine/base/check.h"
#include "engine/base/tensor_format.h"

namespace sluice {
namespace {

std::string BytesOf(absl::Span<const uint8_t> data) { return std::string(data.begin(), data.end()); }

template <typename T>
std::string ArrayBytes(GgufValueType element, const std::vector<T>& values) {
  std::string bytes = GgufBytes(uint32_t(element)) + GgufBytes(uint64_t(values.size()));
  for (const T& value : values) bytes += GgufBytes(value);
  return bytes;
}

}  // namespace

std::string GgufString(absl::string_view text) { return absl::StrCat(GgufBytes(uint64_t(text.size())), text); }

uint32_t GgufTensorTypeId(TensorType type) {
  SLUICE_CHECK(FormatOf(type).gguf_id >= 0);
  return uint32_t(FormatOf(type).gguf_id);
}

void GgufWriter::AddRaw(absl::string_view key, uint32_t value_type, absl::string_view bytes) {
  keys_.push_back(absl::StrCat(GgufString(key), GgufBytes(value_type), bytes));
}

void GgufWriter::AddU8(absl::string_view key, uint8_t value) {
  AddRaw(key, uint32_t(GgufValueType::kU8), GgufBytes(value));
}
void GgufWriter::AddI8(absl::string_view key, int8_t value) {
  AddRaw(key, uint32_t(GgufValueType::kI8), GgufBytes(value));
}
void GgufWriter::AddU16(absl::string_view key, uint16_t value) {
  AddRaw(key, uint32_t(GgufValueType::kU16), GgufBytes(value));
}
void GgufWriter::AddI16(absl::string_view key, int16_t value) {
  AddRaw(key, uint32_t(GgufValueType::kI16), GgufBytes(value));
}
void GgufWriter::AddU32(absl::string_view key, uint32_t value) {
  AddRaw(key, uint32_t(GgufValueType::kU32), GgufBytes(value));
}
void GgufWriter::AddI32(absl::string_view key, int32_t value) {
  AddRaw(key, uint32_t(GgufValueType::kI32), GgufBytes(value));
}
void GgufWriter::AddU64(absl::string_view key, uint64_t value) {
  AddRaw(key, uint32_t(GgufValueType::kU64), GgufBytes(value));
}
void GgufWriter::AddI64(absl::string_view key, int64_t value) {
  AddRaw(key, uint32_t(GgufValueType::kI64), GgufBytes(value));
}
void GgufWriter::AddF32(absl::string_view key, float value) {
  AddRaw(key, uint32_t(GgufValueType::kF32), GgufBytes(value));
}
void GgufWriter::AddF64(absl::string_view key, double value) {
  AddRaw(key, uint32_t(GgufValueType::kF64), GgufBytes(value));
}
void GgufWriter::AddBool(absl::string_view key, bool value) {
  AddRaw(key, uint32_t(GgufValueType::kBool), GgufBytes(uint8_t(value)));
}
void GgufWriter::AddString(absl::string_view key, absl::string_view value) {
  AddRaw(key, uint32_t(GgufValueType::kString), GgufString(value));
}
void GgufWriter::AddStrings(absl::string_view key, const std::vector<std::string>& values) {
  std::string bytes = GgufBytes(uint32_t(GgufValueType::kString)) + GgufBytes(uint64_t(values.size()));
  for (const std::string& value : values) bytes += GgufString(value);
  AddRaw(key, uint32_t(GgufValueType::kArray), bytes);
}
void GgufWriter::AddFloats(absl::string_view key, const std::vector<float>& values) {
  AddRaw(key, uint32_t(GgufValueType::kArray), ArrayBytes(GgufValueType::kF32, values));
}
void GgufWriter::AddI32s(absl::string_view key, const std::vector<int32_t>& values) {
  AddRaw(key, uint32_t(GgufValueType::kArray), ArrayBytes(GgufValueType::kI32, values));
}
void GgufWriter::AddU32s(absl::string_view key, const std::vector<uint32_t>& values) {
  AddRaw(key, uint32_t(GgufValueType::kArray), ArrayBytes(GgufValueType::kU32, values));
}

void GgufWriter::SetAlignment(uint32_t alignment) {
  SLUICE_CHECK(tensors_.empty());
  alignment_ = alignment;
  AddU32("general.alignment", alignment);
}

void GgufWriter::AddTensor(absl::string_view name, TensorType type, const std::vector<int64_t>& shape,
                           absl::Span<const uint8_t> data) {
  int64_t elements = 1;
  for (int64_t dim : shape) elements *= dim;
  SLUICE_CHECK(TensorBytes(type, elements) == int64_t(data.size()));
  AddRawTensor(name, std::vector<uint64_t>(shape.rbegin(), shape.rend()), GgufTensorTypeId(type), std::nullopt, data);
}

void GgufWriter::AddF32Tensor(absl::string_view name, const std::vector<int64_t>& shape,
                              const std::vector<float>& values) {
  AddTensor(name, TensorType::kF32, shape,
            absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(float)));
}

void GgufWriter::AddRawTensor(absl::string_view name, const std::vector<uint64_t>& dims, uint32_t type_id,
                              std::optional<uint64_t> offset, absl::Span<const uint8_t> data) {
  TensorInfo info;
  info.bytes = GgufString(name) + GgufBytes(uint32_t(dims.size()));
  for (uint64_t dim : dims) info.bytes += GgufBytes(dim);
  info.bytes += GgufBytes(type_id) + GgufBytes(offset.value_or(data_bytes_));
  info.data = BytesOf(data);
  data_bytes_ += (data.size() + alignment_ - 1) / alignment_ * alignment_;
  tensors_.push_back(std::move(info));
}

std::string GgufWriter::Bytes() const {
  std::string file = magic + GgufBytes(version) + GgufBytes(tensor_count.value_or(tensors_.size())) +
                     GgufBytes(key_count.value_or(keys_.size()));
  for (const std::string& key : keys_) file += key;
  for (const TensorInfo& tensor : tensors_) file += tensor.bytes;
  // The last tensor is padded too, as GGUF's own writers do it.
  const auto pad = [&] { file.resize((file.size() + alignment_ - 1) / alignment_ * alignment_, '\0'); };
  if (!tensors_.empty()) pad();
  for (const TensorInfo& tensor : tensors_) {
    file += tensor.data;
    pad();
  }
  return file;
}

void GgufWriter::WriteTo(const std::string& path) const {
  std::ofstream out(path, std::ios::binary);
  const std::string bytes = Bytes();
  out.write(bytes.data(), std::streamsize(bytes.size()));
  out.close();
  SLUICE_CHECK(out.good());
}

}  // namespace sluice
