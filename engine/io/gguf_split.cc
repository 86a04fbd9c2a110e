// Models in several files: NAME-00001-of-00003.gguf and so on. The first part has the keys of the model; every part has
// tensors of its own and says which one of how many it is.
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "engine/base/quote.h"
#include "engine/base/status_macros.h"
#include "engine/io/gguf.h"

namespace sluice {
namespace {

constexpr int64_t kMaxParts = 65535;  // the keys are u16

std::string PartName(absl::string_view stem, int64_t part, int64_t count) {
  return absl::StrFormat("%s-%05d-of-%05d.gguf", stem, part + 1, count);
}

}  // namespace

absl::StatusOr<Gguf> Gguf::OpenPart(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  SLUICE_ASSIGN_OR_RETURN(Gguf gguf, ParsePart(file.bytes(), path));
  gguf.files_.push_back(std::move(file));
  return gguf;
}

absl::Status Gguf::AddPart(Gguf part, int64_t number, int64_t count) {
  SLUICE_RETURN_IF_ERROR(part.GetInt("split.no", number, number).status());
  SLUICE_RETURN_IF_ERROR(part.GetInt("split.count", count, count).status());
  const size_t before = tensors_.size();
  for (const auto& [name, index] : part.tensor_index_) {
    if (tensor_index_.emplace(name, before + index).second) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(part.name_, ": tensor ", Quote(name), " is in an earlier part of the model too"));
  }
  for (TensorView& tensor : part.tensors_) tensors_.push_back(std::move(tensor));
  for (MappedFile& file : part.files_) files_.push_back(std::move(file));
  return absl::OkStatus();
}

absl::StatusOr<Gguf> Gguf::Open(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(Gguf gguf, OpenPart(path));
  SLUICE_ASSIGN_OR_RETURN(const std::optional<int64_t> count, gguf.FindInt("split.count", 0, kMaxParts));
  if (count.value_or(1) <= 1) return gguf;
  absl::string_view stem = path;
  if (!absl::ConsumeSuffix(&stem, PartName("", 0, *count))) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": is one of ", *count, " parts of a model; expected the first, called *", PartName("", 0, *count)));
  }
  SLUICE_RETURN_IF_ERROR(gguf.GetInt("split.no", 0, 0).status());
  for (int64_t number = 1; number < *count; ++number) {
    SLUICE_ASSIGN_OR_RETURN(Gguf part, OpenPart(PartName(stem, number, *count)));
    SLUICE_RETURN_IF_ERROR(gguf.AddPart(std::move(part), number, *count));
  }
  const int64_t num_tensors = int64_t(gguf.tensors_.size());
  SLUICE_RETURN_IF_ERROR(gguf.FindInt("split.tensors.count", num_tensors, num_tensors).status());
  return gguf;
}

}  // namespace sluice
