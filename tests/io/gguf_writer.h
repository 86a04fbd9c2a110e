// Writes GGUF files for tests: toy models, and through Raw* and the override knobs every kind of damaged file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/base/tensor_type.h"

namespace sluice {

// GGUF's ids of metadata value types.
enum class GgufValueType : uint32_t {
  kU8 = 0,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64
};

// GGUF's id of a tensor type. REQUIRES: GGUF has the type.
uint32_t GgufTensorTypeId(TensorType type);

// Keys and tensors come out in the order they were added.
class GgufWriter {
 public:
  void AddU8(absl::string_view key, uint8_t value);
  void AddI8(absl::string_view key, int8_t value);
  void AddU16(absl::string_view key, uint16_t value);
  void AddI16(absl::string_view key, int16_t value);
  void AddU32(absl::string_view key, uint32_t value);
  void AddI32(absl::string_view key, int32_t value);
  void AddU64(absl::string_view key, uint64_t value);
  void AddI64(absl::string_view key, int64_t value);
  void AddF32(absl::string_view key, float value);
  void AddF64(absl::string_view key, double value);
  void AddBool(absl::string_view key, bool value);
  void AddString(absl::string_view key, absl::string_view value);
  void AddStrings(absl::string_view key, const std::vector<std::string>& values);
  void AddFloats(absl::string_view key, const std::vector<float>& values);
  void AddI32s(absl::string_view key, const std::vector<int32_t>& values);
  void AddU32s(absl::string_view key, const std::vector<uint32_t>& values);
  // Any value by its bytes; arrays start with their element type and count.
  void AddRaw(absl::string_view key, uint32_t value_type, absl::string_view bytes);

  // Adds general.alignment and aligns tensors to it. Without: 32, unsaid.
  void SetAlignment(uint32_t alignment);

  // `shape` is outermost first, as TensorView has it. REQUIRES: `data` is as long as type and shape say.
  void AddTensor(absl::string_view name, TensorType type, const std::vector<int64_t>& shape,
                 absl::Span<const uint8_t> data);
  // The same for F32, from numbers.
  void AddF32Tensor(absl::string_view name, const std::vector<int64_t>& shape, const std::vector<float>& values);
  // A tensor info taken at its word, for damaged files. `dims` are in GGUF's order; `offset`: where it claims its data
  // to be (unset: the next free place); `data` is appended to the data section.
  void AddRawTensor(absl::string_view name, const std::vector<uint64_t>& dims, uint32_t type_id,
                    std::optional<uint64_t> offset, absl::Span<const uint8_t> data);

  // Claims in the header, in place of the truth.
  std::string magic = "GGUF";
  uint32_t version = 3;
  std::optional<uint64_t> tensor_count;
  std::optional<uint64_t> key_count;

  std::string Bytes() const;
  // REQUIRES: the file can be written.
  void WriteTo(const std::string& path) const;

 private:
  struct TensorInfo {
    std::string bytes;
    std::string data;
  };

  uint32_t alignment_ = 32;
  std::vector<std::string> keys_;
  std::vector<TensorInfo> tensors_;
  uint64_t data_bytes_ = 0;  // padded
};

// Little-endian bytes of a number, and GGUF's form of a string.
template <typename T>
std::string GgufBytes(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}
std::string GgufString(absl::string_view text);

}  // namespace sluice
