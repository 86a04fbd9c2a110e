// Typed access to the metadata; gguf_parser.cc reads the file.
#include "engine/io/gguf.h"

#include <cstring>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/quote.h"
#include "engine/base/status_macros.h"

namespace sluice {
namespace {

constexpr int64_t kMaxInt64 = std::numeric_limits<int64_t>::max();
constexpr int64_t kMinInt64 = std::numeric_limits<int64_t>::min();
constexpr int64_t kMaxLayers = 65536;

template <typename T>
T Load(const uint8_t* p) {
  T value;
  std::memcpy(&value, p, sizeof(value));
  return value;
}

}  // namespace

const char* Gguf::TypeName(Type type) {
  static constexpr const char* kNames[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                           "bool", "string", "array", "u64", "i64", "f64"};
  return kNames[int(type)];
}

uint64_t Gguf::TypeBytes(Type type) {
  static constexpr uint8_t kBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  return kBytes[int(type)];
}

bool Gguf::IsInteger(Type type) {
  switch (type) {
    case Type::kU8:
    case Type::kI8:
    case Type::kU16:
    case Type::kI16:
    case Type::kU32:
    case Type::kI32:
    case Type::kU64:
    case Type::kI64:
      return true;
    case Type::kF32:
    case Type::kBool:
    case Type::kString:
    case Type::kArray:
    case Type::kF64:
      return false;
  }
  return false;
}

absl::Status Gguf::Invalid(absl::string_view key, const uint8_t* where, absl::string_view problem) const {
  return absl::InvalidArgumentError(
      absl::StrFormat("%s: offset %d: key %s %s", name_, where - bytes_.data(), Quote(key), problem));
}

template <typename Accepts>
absl::StatusOr<const Gguf::Value*> Gguf::Lookup(absl::string_view key, absl::string_view expected,
                                                Accepts accepts) const {
  const auto found = metadata_.find(key);
  if (found == metadata_.end()) {
    return absl::NotFoundError(absl::StrFormat("%s: key %s is missing; expected %s", name_, Quote(key), expected));
  }
  const Value& value = found->second;
  if (accepts(value)) return &value;
  const std::string type = value.type == Type::kArray
                               ? absl::StrFormat("an array of %d %s", value.count, TypeName(value.element))
                               : TypeName(value.type);
  return Invalid(key, value.data, absl::StrFormat("is %s; expected %s", type, expected));
}

template <typename T>
absl::StatusOr<std::optional<T>> Gguf::IfPresent(absl::string_view key, absl::StatusOr<T> value) const {
  if (!Has(key)) return std::optional<T>();
  if (!value.ok()) return std::move(value).status();
  return std::optional<T>(*std::move(value));
}

absl::StatusOr<int64_t> Gguf::IntElement(absl::string_view key, const Value& value, uint64_t index, int64_t min,
                                         int64_t max) const {
  const Type type = value.type == Type::kArray ? value.element : value.type;
  const uint8_t* p = value.data + index * TypeBytes(type);
  int64_t number = 0;
  switch (type) {
    case Type::kU8:
      number = Load<uint8_t>(p);
      break;
    case Type::kI8:
      number = Load<int8_t>(p);
      break;
    case Type::kU16:
      number = Load<uint16_t>(p);
      break;
    case Type::kI16:
      number = Load<int16_t>(p);
      break;
    case Type::kU32:
      number = Load<uint32_t>(p);
      break;
    case Type::kI32:
      number = Load<int32_t>(p);
      break;
    default:
      number = Load<int64_t>(p);
      break;
  }
  const bool too_large = type == Type::kU64 && number < 0;
  if (!too_large && number >= min && number <= max) return number;
  const std::string element = value.type == Type::kArray ? absl::StrFormat("element %d ", index) : "";
  const std::string found = too_large ? absl::StrCat(uint64_t(number)) : absl::StrCat(number);
  return Invalid(key, p, absl::StrFormat("%sis %s; expected %d to %d", element, found, min, max));
}

absl::StatusOr<int64_t> Gguf::GetInt(absl::string_view key, int64_t min, int64_t max) const {
  SLUICE_ASSIGN_OR_RETURN(const Value* value,
                          Lookup(key, "an integer", [](const Value& v) { return IsInteger(v.type); }));
  return IntElement(key, *value, 0, min, max);
}

absl::StatusOr<uint64_t> Gguf::GetUint(absl::string_view key) const {
  SLUICE_ASSIGN_OR_RETURN(const int64_t value, GetInt(key, 0, kMaxInt64));
  return uint64_t(value);
}

absl::StatusOr<float> Gguf::GetFloat(absl::string_view key) const {
  SLUICE_ASSIGN_OR_RETURN(const Value* value, Lookup(key, "f32 or f64", [](const Value& v) {
                            return v.type == Type::kF32 || v.type == Type::kF64;
                          }));
  return value->type == Type::kF32 ? Load<float>(value->data) : float(Load<double>(value->data));
}

absl::StatusOr<bool> Gguf::GetBool(absl::string_view key) const {
  SLUICE_ASSIGN_OR_RETURN(const Value* value,
                          Lookup(key, "bool", [](const Value& v) { return v.type == Type::kBool; }));
  return *value->data != 0;
}

absl::StatusOr<absl::string_view> Gguf::GetString(absl::string_view key) const {
  SLUICE_ASSIGN_OR_RETURN(const Value* value,
                          Lookup(key, "string", [](const Value& v) { return v.type == Type::kString; }));
  return absl::string_view(reinterpret_cast<const char*>(value->data), value->count);
}

absl::StatusOr<std::vector<int64_t>> Gguf::GetIntArray(absl::string_view key) const {
  SLUICE_ASSIGN_OR_RETURN(const Value* value, Lookup(key, "an array of integers", [](const Value& v) {
                            return v.type == Type::kArray && IsInteger(v.element);
                          }));
  std::vector<int64_t> numbers(value->count);
  for (uint64_t i = 0; i < value->count; ++i) {
    SLUICE_ASSIGN_OR_RETURN(numbers[i], IntElement(key, *value, i, kMinInt64, kMaxInt64));
  }
  return numbers;
}

absl::StatusOr<std::vector<float>> Gguf::GetFloatArray(absl::string_view key) const {
  SLUICE_ASSIGN_OR_RETURN(const Value* value, Lookup(key, "an array of f32", [](const Value& v) {
                            return v.type == Type::kArray && v.element == Type::kF32;
                          }));
  std::vector<float> numbers(value->count);
  if (!numbers.empty()) std::memcpy(numbers.data(), value->data, value->count * sizeof(float));
  return numbers;
}

absl::StatusOr<std::vector<absl::string_view>> Gguf::GetStringArray(absl::string_view key) const {
  SLUICE_ASSIGN_OR_RETURN(const Value* value, Lookup(key, "an array of strings", [](const Value& v) {
                            return v.type == Type::kArray && v.element == Type::kString;
                          }));
  std::vector<absl::string_view> strings(value->count);
  const uint8_t* p = value->data;
  for (absl::string_view& text : strings) {
    const uint64_t size = Load<uint64_t>(p);
    text = absl::string_view(reinterpret_cast<const char*>(p + sizeof(size)), size);
    p += sizeof(size) + size;
  }
  return strings;
}

absl::StatusOr<std::vector<int64_t>> Gguf::GetIntPerLayer(absl::string_view key, int64_t num_layers, int64_t min,
                                                          int64_t max) const {
  SLUICE_ASSIGN_OR_RETURN(const Value* value, Lookup(key, "an integer or an array of them", [](const Value& v) {
                            return IsInteger(v.type) || (v.type == Type::kArray && IsInteger(v.element));
                          }));
  if (num_layers < 0 || num_layers > kMaxLayers) {
    return Invalid(key, value->data,
                   absl::StrFormat("is wanted for %d layers; expected 0 to %d", num_layers, kMaxLayers));
  }
  const bool array = value->type == Type::kArray;
  if (array && value->count != uint64_t(num_layers)) {
    return Invalid(key, value->data,
                   absl::StrFormat("is an array of %d; expected one for each of %d layers", value->count, num_layers));
  }
  std::vector<int64_t> numbers(num_layers);
  for (int64_t i = 0; i < num_layers; ++i) {
    SLUICE_ASSIGN_OR_RETURN(numbers[i], IntElement(key, *value, array ? i : 0, min, max));
  }
  return numbers;
}

absl::StatusOr<std::optional<int64_t>> Gguf::FindInt(absl::string_view key, int64_t min, int64_t max) const {
  return IfPresent(key, GetInt(key, min, max));
}
absl::StatusOr<std::optional<uint64_t>> Gguf::FindUint(absl::string_view key) const {
  return IfPresent(key, GetUint(key));
}
absl::StatusOr<std::optional<float>> Gguf::FindFloat(absl::string_view key) const {
  return IfPresent(key, GetFloat(key));
}
absl::StatusOr<std::optional<bool>> Gguf::FindBool(absl::string_view key) const { return IfPresent(key, GetBool(key)); }
absl::StatusOr<std::optional<absl::string_view>> Gguf::FindString(absl::string_view key) const {
  return IfPresent(key, GetString(key));
}
absl::StatusOr<std::optional<std::vector<int64_t>>> Gguf::FindIntArray(absl::string_view key) const {
  return IfPresent(key, GetIntArray(key));
}

const TensorView* Gguf::FindTensor(absl::string_view name) const {
  const auto found = tensor_index_.find(name);
  return found == tensor_index_.end() ? nullptr : &tensors_[found->second];
}

}  // namespace sluice
