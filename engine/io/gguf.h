// GGUF model files, versions 2 and 3, little-endian: metadata by key and tensors by name.
// Layout: magic "GGUF", u32 version, u64 tensor count, u64 key count; the keys; the tensor infos; padding; tensor data.
// A large model may come in several files, of which the first has the keys.
// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/base/tensor_view.h"
#include "engine/io/mapped_file.h"

namespace sluice {

// The whole structure is checked when the file is opened, before anything believes it: every count, length, dimension
// and offset against the bytes that are there, unique keys and tensor names, alignment, tensors that overlap. Nothing
// is copied but tensor names and shapes: strings and tensor data point into the file and live as long as this object
// (or its successor by move) and, after Parse, the caller's bytes. Memory taken is bounded by a small multiple of the
// bytes read so far, whatever a count claims.
//
// Errors are INVALID_ARGUMENT (damaged or hostile file, key of another type, number out of range), UNIMPLEMENTED
// (version, byte order or tensor type that is not supported; Parse of one part of several) or NOT_FOUND (missing key),
// and name the file, the key or tensor, the offset, what was found and what was expected. Immutable, hence thread-safe.
class Gguf {
 public:
  // Of a model in several files, NAME-00001-of-0000N.gguf, `path` is the first; all are opened, and it is an error if
  // one is missing, does not say that it is this part, or holds a tensor that another one has.
  static absl::StatusOr<Gguf> Open(const std::string& path);
  // A whole file in memory, which must outlive the result. `name` stands for the file in errors.
  static absl::StatusOr<Gguf> Parse(absl::Span<const uint8_t> bytes, std::string name);

  const std::string& name() const { return name_; }
  uint32_t version() const { return version_; }

  // Metadata. Get*: the key must be there. Find*: nothing when it is missing; a wrong type is still an error.
  bool Has(absl::string_view key) const { return metadata_.contains(key); }
  // Integers of any width and signedness are taken, if min <= value <= max.
  absl::StatusOr<int64_t> GetInt(absl::string_view key, int64_t min, int64_t max) const;
  absl::StatusOr<std::optional<int64_t>> FindInt(absl::string_view key, int64_t min, int64_t max) const;
  // As GetInt from 0 to 2^63 - 1.
  absl::StatusOr<uint64_t> GetUint(absl::string_view key) const;
  absl::StatusOr<std::optional<uint64_t>> FindUint(absl::string_view key) const;
  // f32, or f64 rounded to it. Any value, NaN included.
  absl::StatusOr<float> GetFloat(absl::string_view key) const;
  absl::StatusOr<std::optional<float>> FindFloat(absl::string_view key) const;
  absl::StatusOr<bool> GetBool(absl::string_view key) const;
  absl::StatusOr<std::optional<bool>> FindBool(absl::string_view key) const;
  // Bytes as stored; not checked for UTF-8.
  absl::StatusOr<absl::string_view> GetString(absl::string_view key) const;
  absl::StatusOr<std::optional<absl::string_view>> FindString(absl::string_view key) const;

  // Arrays. Integers of any width and signedness (below 2^63); f32 only; strings that point into the file.
  absl::StatusOr<std::vector<int64_t>> GetIntArray(absl::string_view key) const;
  absl::StatusOr<std::vector<float>> GetFloatArray(absl::string_view key) const;
  absl::StatusOr<std::vector<absl::string_view>> GetStringArray(absl::string_view key) const;
  absl::StatusOr<std::optional<std::vector<int64_t>>> FindIntArray(absl::string_view key) const;
  // One integer in [min, max] per layer: from an array of `num_layers`, or a single number for all
  // (attention.head_count_kv comes both ways). Refuses more than 65,536 layers.
  absl::StatusOr<std::vector<int64_t>> GetIntPerLayer(absl::string_view key, int64_t num_layers, int64_t min,
                                                      int64_t max) const;

  // Tensors in the order of the files. Shapes are outermost first, the reverse of how GGUF writes them; data is a
  // multiple of general.alignment into the data section, which itself starts at such a multiple of the file.
  absl::Span<const TensorView> tensors() const { return tensors_; }
  // Null when there is none of that name.
  const TensorView* FindTensor(absl::string_view name) const;

  // The files themselves, for whoever keeps strings and copies of tensors() alive without this object; none after
  // Parse.
  std::vector<MappedFile> TakeFiles() && { return std::move(files_); }

 private:
  enum class Type : uint8_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64 };
  class Parser;  // gguf_parser.cc
  struct Value {
    const uint8_t* data;  // the number, the bytes of the string, or the first element
    uint64_t count;       // length of the string or array; 1 for a number
    Type type;
    Type element;  // of an array
  };

  Gguf() = default;
  // A file that may be one part of several.
  static absl::StatusOr<Gguf> ParsePart(absl::Span<const uint8_t> bytes, std::string name);
  static absl::StatusOr<Gguf> OpenPart(const std::string& path);
  // Takes over the tensors of part `number` (from 0) of `count`.
  absl::Status AddPart(Gguf part, int64_t number, int64_t count);

  static const char* TypeName(Type type);
  static uint64_t TypeBytes(Type type);  // 0 for strings and arrays
  static bool IsInteger(Type type);
  // The value of `key`, if `accepts(value)`.
  template <typename Accepts>
  absl::StatusOr<const Value*> Lookup(absl::string_view key, absl::string_view expected, Accepts accepts) const;
  template <typename T>
  absl::StatusOr<std::optional<T>> IfPresent(absl::string_view key, absl::StatusOr<T> value) const;
  absl::Status Invalid(absl::string_view key, const uint8_t* where, absl::string_view problem) const;
  // Element `index` of an integer value or array of integers, checked against the range.
  absl::StatusOr<int64_t> IntElement(absl::string_view key, const Value& value, uint64_t index, int64_t min,
                                     int64_t max) const;

  std::vector<MappedFile> files_;  // none after Parse
  absl::Span<const uint8_t> bytes_;
  std::string name_;
  uint32_t version_ = 0;
  absl::flat_hash_map<absl::string_view, Value> metadata_;
  std::vector<TensorView> tensors_;
  absl::flat_hash_map<absl::string_view, size_t> tensor_index_;  // name, in a file's bytes -> position in tensors_
};

}  // namespace sluice
