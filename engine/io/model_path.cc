#include "engine/io/model_path.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/nearest_name.h"
#include "engine/base/quote.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

// Of a folder's entries, sorted; a folder that cannot be read has none.
std::vector<std::string> Names(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// "organisation/model", as Hugging Face names a repository.
bool LooksLikeRepository(const std::string& path) {
  return std::count(path.begin(), path.end(), '/') == 1 && path.front() != '/' && path.front() != '.' &&
         path.back() != '/' && !absl::EndsWith(path, ".gguf");
}

std::string MissingAdvice(const std::string& path) {
  if (absl::StrContains(path, "://")) return "models are read from files: download it first and give its path";
  if (absl::StartsWith(path, "~")) return "the shell replaces ~ only at the beginning of an unquoted word";
  fs::path given(path);
  if (!given.has_filename()) given = given.parent_path();  // "models/x/"
  const fs::path parent = given.parent_path();
  const std::string nearest = NearestName(given.filename().string(), Names(parent.empty() ? "." : parent));
  if (!nearest.empty()) return absl::StrCat("did you mean ", Quote(nearest), "?");
  const std::string wanted = "expected the path of a GGUF file or of a Hugging Face folder";
  if (!LooksLikeRepository(path)) return wanted;
  return absl::StrCat(wanted, "; a model of Hugging Face is downloaded first: hf download ", path, " --local-dir ",
                      given.filename().string());
}

// Of a folder without config.json.
std::string FolderAdvice(const fs::path& folder) {
  std::vector<std::string> ggufs;
  for (const std::string& name : Names(folder)) {
    // Of a model in parts the first one stands for all, and an mmproj file holds no language model.
    const bool later_part = absl::StrContains(name, "-of-") && !absl::StrContains(name, "-00001-of-");
    if (absl::EndsWith(name, ".gguf") && !later_part && !absl::StrContains(name, "mmproj")) ggufs.push_back(name);
  }
  const std::string no_config = "no config.json is in the folder";
  if (ggufs.size() == 1) return absl::StrCat(no_config, "; give the GGUF file there: ", QuoteList(ggufs));
  if (!ggufs.empty()) {
    return absl::StrCat(no_config, "; give one of the ", ggufs.size(), " GGUF files there: ", QuoteList(ggufs));
  }
  const std::vector<std::string> revisions = Names(folder / "snapshots");
  if (revisions.empty()) return absl::StrCat(no_config, ", nor a GGUF file; expected a Hugging Face model");
  return absl::StrCat("the folder is the cache of a Hugging Face model; give one of its revisions: ",
                      Quote("snapshots/" + revisions.front()));
}

}  // namespace

absl::Status CheckModelPath(const std::string& path) {
  if (path.empty()) return absl::NotFoundError("found an empty path, expected that of a model");
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) {
    return absl::NotFoundError(absl::StrCat(path, ": there is no such file or folder; ", MissingAdvice(path)));
  }
  if (status.type() != fs::file_type::directory) return absl::OkStatus();
  // Whatever else is wrong with it, its reader says.
  const fs::file_status config = fs::symlink_status(fs::path(path) / "config.json", error);
  if (config.type() != fs::file_type::not_found) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat(path, ": ", FolderAdvice(path)));
}

}  // namespace sluice
