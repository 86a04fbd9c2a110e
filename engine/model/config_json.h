// A Hugging Face config.json (or an object inside it) with typed access. Every error names the file, the key, what was
// found and what was expected.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sluice {

// Cheap to copy: objects found inside share the document. Thread-safe: the document never changes, and what it
// remembers of the keys asked for has a lock of its own.
//
// Find*: nothing when the key is missing or null (IsNull tells the two apart); Get*: an error then. A value of another
// type, or outside the range, is an error for both.
class ConfigJson {
 public:
  // NOT_FOUND or PERMISSION_DENIED for the file; INVALID_ARGUMENT if it is over 16 MiB, not a JSON object, or
  // nested deeper than 64.
  static absl::StatusOr<ConfigJson> Open(const std::string& path);
  // `name` stands for the file in errors.
  static absl::StatusOr<ConfigJson> Parse(absl::string_view text, std::string name);

  const std::string& name() const { return name_; }

  bool empty() const;
  bool Has(absl::string_view key) const;  // also if it is null
  bool IsNull(absl::string_view key) const;

  absl::StatusOr<std::optional<int64_t>> FindInt(absl::string_view key, int64_t min, int64_t max) const;
  absl::StatusOr<int64_t> GetInt(absl::string_view key, int64_t min, int64_t max) const;
  absl::StatusOr<int64_t> IntOr(absl::string_view key, int64_t min, int64_t max, int64_t otherwise) const;
  // Any JSON number, rounded to f32; must be finite in f32.
  absl::StatusOr<std::optional<float>> FindFloat(absl::string_view key) const;
  absl::StatusOr<float> GetFloat(absl::string_view key) const;
  absl::StatusOr<float> FloatOr(absl::string_view key, float otherwise) const;
  absl::StatusOr<std::optional<bool>> FindBool(absl::string_view key) const;
  absl::StatusOr<bool> BoolOr(absl::string_view key, bool otherwise) const;
  absl::StatusOr<std::optional<std::string>> FindString(absl::string_view key) const;
  absl::StatusOr<std::string> GetString(absl::string_view key) const;
  absl::StatusOr<std::optional<ConfigJson>> FindObject(absl::string_view key) const;
  absl::StatusOr<ConfigJson> GetObject(absl::string_view key) const;
  // An array of integers, or a single one as a list of length 1 (eos_token_id comes both ways).
  absl::StatusOr<std::optional<std::vector<int64_t>>> FindInts(absl::string_view key, int64_t min, int64_t max) const;
  // Arrays; numbers as FindFloat.
  absl::StatusOr<std::optional<std::vector<float>>> FindFloats(absl::string_view key) const;
  absl::StatusOr<std::optional<std::vector<std::string>>> FindStrings(absl::string_view key) const;

  // Says that a key has no bearing: it counts as asked for.
  void Ignore(absl::string_view key) const;
  // Remembers something to say about the file that is no error; `text` does not name the file.
  void Warn(std::string text) const;
  // All of them, in order and with the file's name.
  std::vector<std::string> Warnings() const;
  // Keys, with those of the objects they are in, that nobody has asked for: "rope_scaling.short_mscale". An object that
  // nobody asked for is named itself, not by its keys; a null is as good as missing. Sorted.
  std::vector<std::string> UnreadKeys() const;

 private:
  struct Document;  // the parsed text and what has been asked of it
  struct Rep;       // a JSON object of a document
  ConfigJson(std::shared_ptr<const Rep> rep, std::string name, std::string prefix);

  absl::Status WrongValue(absl::string_view key, absl::string_view expected) const;
  absl::Status Missing(absl::string_view key) const;

  std::shared_ptr<const Rep> rep_;
  std::string name_;
  std::string prefix_;  // "rope_scaling." inside that object
};

}  // namespace sluice
