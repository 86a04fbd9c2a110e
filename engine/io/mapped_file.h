// A whole file as read-only memory.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace sluice {

// Move-only; the mapping lives as long as the object and its address survives a move. The file must not shrink
// meanwhile: reading pages that are gone raises SIGBUS. Thread-safe for readers.
class MappedFile {
 public:
  // Errors name the path: NOT_FOUND (no such file), PERMISSION_DENIED, INVALID_ARGUMENT (a directory, not a regular
  // file, empty, or the few lines that Git LFS keeps in a file's place), otherwise what the system said.
  static absl::StatusOr<MappedFile> Open(const std::string& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  absl::Span<const uint8_t> bytes() const { return bytes_; }

 private:
  explicit MappedFile(absl::Span<const uint8_t> bytes) : bytes_(bytes) {}

  absl::Span<const uint8_t> bytes_;
};

}  // namespace sluice
