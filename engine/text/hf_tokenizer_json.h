// tokenizer.json taken apart without a tree of its largest lists: a vocabulary of 262,144 tokens with 514,906 merges is
// 33 MB of JSON.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/text/tokenizer_spec.h"

namespace sluice {

struct HfTokenizerJson {
  std::shared_ptr<std::string> storage;                           // holds the strings of the two lists
  std::vector<std::pair<absl::string_view, int64_t>> vocabulary;  // model.vocab, where it is an object
  std::vector<MergeRule> merges;                                  // model.merges, in either spelling
  nlohmann::json rest;                                            // an object: everything else
};

// INVALID_ARGUMENT: not JSON (with the byte), not an object, nested deeper than 64, an id that is not an integer from 0
// to 2^22, a merge that is neither "a b" nor ["a", "b"].
absl::StatusOr<HfTokenizerJson> ParseHfTokenizerJson(absl::string_view json);

// A value inside of a JSON document, with the way to it, which every error names. Cheap to copy; the document must
// outlive it. A missing key and null are the same: IsNull.
class HfField {
 public:
  HfField(const nlohmann::json* value, std::string path) : value_(value), path_(std::move(path)) {}

  bool IsNull() const { return value_ == nullptr || value_->is_null(); }
  const nlohmann::json* value() const { return value_; }
  const std::string& path() const { return path_; }

  // A member; IsNull for what is no object or has no such key.
  HfField operator[](absl::string_view key) const;

  absl::StatusOr<std::vector<HfField>> List() const;  // of an array; null is an empty one
  absl::StatusOr<std::string> String() const;
  absl::StatusOr<bool> BoolOr(bool otherwise) const;  // `otherwise` for null
  absl::StatusOr<int64_t> Int(int64_t min, int64_t max) const;

  // INVALID_ARGUMENT "PATH is VALUE, expected ..."; UNIMPLEMENTED "PATH is VALUE, which is not supported; ...".
  absl::Status Wrong(absl::string_view expected) const;
  absl::Status Unsupported(absl::string_view supported) const;

 private:
  std::string Describe() const;

  const nlohmann::json* value_;  // may be nullptr
  std::string path_;
};

}  // namespace sluice
