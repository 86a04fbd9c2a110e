#include "engine/io/model_folder.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/quote.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

bool IsPlainName(absl::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find_first_of(absl::string_view("/\\\0", 3)) == name.npos;
}

// Both without links and "..".
bool IsInside(const fs::path& path, const fs::path& folder) {
  const fs::path relative = path.lexically_relative(folder);
  return !relative.empty() && *relative.begin() != ".." && *relative.begin() != ".";
}

absl::Status SystemError(const std::string& path, const std::error_code& error) {
  return absl::ErrnoToStatus(error.value(), absl::StrCat(path, ": cannot open"));
}

}  // namespace

absl::StatusOr<ModelFolder> ModelFolder::Open(const std::string& path) {
  std::error_code error;
  const fs::path root = fs::canonical(path, error);
  if (error) return SystemError(path, error);
  if (!fs::is_directory(root, error)) return absl::InvalidArgumentError(absl::StrCat(path, ": is not a folder"));
  return ModelFolder(path, root.string());
}

bool ModelFolder::Has(absl::string_view name) const {
  std::error_code error;
  return IsPlainName(name) && fs::exists(fs::symlink_status(fs::path(path_) / std::string(name), error));
}

std::vector<std::string> ModelFolder::NamesThatEndIn(absl::string_view ending) const {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(root_, error), end; !error && it != end; it.increment(error)) {
    std::string name = it->path().filename().string();
    if (absl::EndsWith(name, ending)) names.push_back(std::move(name));
  }
  std::sort(names.begin(), names.end());
  return names;
}

absl::StatusOr<std::string> ModelFolder::Find(absl::string_view name) const {
  if (!IsPlainName(name)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path_, ": found ", Quote(name), " as the name of a file in it, expected one without folders"));
  }
  const std::string path = (fs::path(path_) / std::string(name)).string();
  std::error_code error;
  const fs::path target = fs::canonical(path, error);
  if (error) {
    const bool is_link = fs::is_symlink(fs::symlink_status(path, error));
    if (is_link) return absl::NotFoundError(absl::StrCat(path, ": is a link that leads nowhere"));
    return absl::NotFoundError(absl::StrCat(path, ": no such file"));
  }
  const fs::path root(root_), revisions = root.parent_path();
  // The cache's own layout, spelled out: a blobs folder that is itself a link elsewhere does not count.
  const bool in_cache = revisions.filename() == "snapshots" && IsInside(target, revisions.parent_path() / "blobs");
  if (!IsInside(target, root) && !in_cache) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is a link out of the folder"));
  }
  return path;
}

}  // namespace sluice
