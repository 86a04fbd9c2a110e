// The files of a model's folder, found by plain name.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sluice {

// A folder may come from anybody, so that a name in one of its files or a link in it must not reach files elsewhere.
// Links are followed where they end inside the folder, or in <repository>/blobs if the folder is
// <repository>/snapshots/<revision> (Hugging Face's cache keeps files that way). Immutable, hence thread-safe.
class ModelFolder {
 public:
  // NOT_FOUND, or INVALID_ARGUMENT for what is no folder.
  static absl::StatusOr<ModelFolder> Open(const std::string& path);

  const std::string& path() const { return path_; }

  // Whether there is such an entry; a link that leads nowhere is one.
  bool Has(absl::string_view name) const;

  // The names of the folder's entries that end so, in order.
  std::vector<std::string> NamesThatEndIn(absl::string_view ending) const;

  // The path of the file. Errors name it: INVALID_ARGUMENT for a name that is not plain ("../x", "a/b", "..", "") or a
  // link that leaves the folder, NOT_FOUND for an entry that is not there or a link that leads nowhere.
  absl::StatusOr<std::string> Find(absl::string_view name) const;

 private:
  ModelFolder(std::string path, std::string root) : path_(std::move(path)), root_(std::move(root)) {}

  std::string path_;  // as it was given
  std::string root_;  // without links
};

}  // namespace sluice
