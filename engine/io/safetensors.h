// safetensors files: u64 length of the header, the header (JSON: name -> dtype, shape, data_offsets), the tensors'
// bytes. https://github.com/huggingface/safetensors#format
#pragma once

#include <cstdint>
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

// The whole structure is checked when the file is opened, by the rules of the format's own library and stricter:
//   - the header has at most 100,000,000 bytes, starts with '{', is UTF-8 JSON and holds nothing but tensors and the
//     strings of __metadata__; no name, key or metadata key occurs twice; at most 1,000,000 tensors of at most 8
//     dimensions;
//   - shapes and offsets are non-negative integers, every product fits 63 bits (also that of the dimensions other than
//     0), dtype times shape is exactly what data_offsets span;
//   - the tensors' bytes follow each other without holes or overlaps, and the last one ends where the file ends.
// Tensor data points into the file, at any alignment. Memory taken is bounded by a small multiple of the header.
//
// Errors are INVALID_ARGUMENT (damaged or hostile file) or UNIMPLEMENTED (a dtype that is not known) and name the file,
// the tensor, what was found and what was expected. Immutable, hence thread-safe.
class Safetensors {
 public:
  static absl::StatusOr<Safetensors> Open(const std::string& path);
  // The same for bytes in memory, which must outlive the result. `name` stands for the file in errors.
  static absl::StatusOr<Safetensors> Parse(absl::Span<const uint8_t> bytes, std::string name);

  const std::string& name() const { return name_; }

  // In the order of their bytes.
  absl::Span<const TensorView> tensors() const { return tensors_; }
  // Null when there is none of that name.
  const TensorView* FindTensor(absl::string_view name) const;

  // The file itself, for whoever keeps copies of tensors() alive without this object; empty after Parse.
  MappedFile TakeFile() && { return std::move(file_); }

 private:
  Safetensors() = default;

  MappedFile file_;
  std::string name_;
  std::vector<TensorView> tensors_;
  absl::flat_hash_map<absl::string_view, size_t> tensor_index_;  // name, in tensors_ -> position there
};

}  // namespace sluice
