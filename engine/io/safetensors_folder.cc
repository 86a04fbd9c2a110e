#include "engine/io/safetensors_folder.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/check.h"
#include "engine/base/quote.h"
#include "engine/base/status_macros.h"
#include "engine/io/mapped_file.h"
#include "engine/io/strict_json.h"

namespace sluice {
namespace {

constexpr absl::string_view kSingleFile = "model.safetensors";
constexpr absl::string_view kIndex = "model.safetensors.index.json";
constexpr size_t kMaxIndexBytes = 100'000'000;  // as for the header that it stands for

class IndexReader : public StrictJson {
 public:
  explicit IndexReader(const std::string& name) : StrictJson(name, 0) {}

  bool had_weight_map() const { return had_weight_map_; }
  SafetensorsIndex TakeWeightMap() { return std::move(weight_map_); }

  bool start_object(size_t) override {
    switch (in_) {
      case In::kFile:
        in_ = In::kIndex;
        return true;
      case In::kIndex:
        in_ = next_;
        return true;
      default:
        return Unexpected("an object");
    }
  }
  bool end_object() override {
    in_ = in_ == In::kIndex ? In::kFile : In::kIndex;
    return true;
  }

  bool key(std::string& key) override {
    switch (in_) {
      case In::kIndex:
        if (key == "weight_map") {
          if (std::exchange(had_weight_map_, true)) return Refuse("key 'weight_map' occurs twice");
          next_ = In::kWeightMap;
        } else if (key == "metadata") {
          if (std::exchange(had_metadata_, true)) return Refuse("key 'metadata' occurs twice");
          next_ = In::kMetadata;
        } else {
          return Refuse(absl::StrCat("key ", Quote(key), " is not known; expected metadata and weight_map"));
        }
        return true;
      case In::kWeightMap: {
        const auto [entry, is_new] = weight_map_.try_emplace(key);
        shard_ = &entry->second;
        key_ = key;
        return is_new || Refuse("occurs twice");
      }
      default:
        return true;
    }
  }

  bool string(std::string& value) override {
    if (in_ == In::kMetadata) return true;
    if (in_ != In::kWeightMap) return Unexpected(Quote(value));
    *shard_ = value;
    return true;
  }
  bool null() override { return in_ == In::kMetadata || StrictJson::null(); }
  bool boolean(bool value) override { return in_ == In::kMetadata || StrictJson::boolean(value); }
  bool number_integer(int64_t value) override { return in_ == In::kMetadata || StrictJson::number_integer(value); }
  bool number_unsigned(uint64_t value) override { return in_ == In::kMetadata || StrictJson::number_unsigned(value); }
  bool number_float(double value, const std::string& text) override {
    return in_ == In::kMetadata || StrictJson::number_float(value, text);
  }

 protected:
  std::string Where() const override {
    return in_ == In::kWeightMap ? absl::StrCat("weight_map: tensor ", Quote(key_)) : "";
  }
  std::string Expected() const override {
    if (in_ == In::kWeightMap) return "the name of a file";
    return in_ == In::kMetadata ? "a number or a string in metadata" : "an object";
  }

 private:
  enum class In { kFile, kIndex, kMetadata, kWeightMap };

  In in_ = In::kFile, next_ = In::kFile;
  bool had_weight_map_ = false, had_metadata_ = false;
  SafetensorsIndex weight_map_;
  std::string key_;               // of the weight map
  std::string* shard_ = nullptr;  // where its value goes
};

absl::StatusOr<SafetensorsIndex> ReadIndex(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  const absl::Span<const uint8_t> bytes = file.bytes();
  return ParseSafetensorsIndex(absl::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()), path);
}

// What the index names besides the single file; nothing if it cannot be read, for it is not what is served.
std::vector<std::string> OtherShards(const ModelFolder& folder) {
  if (!folder.Has(kIndex)) return {};
  const absl::StatusOr<std::string> path = folder.Find(kIndex);
  if (!path.ok()) return {};
  const absl::StatusOr<SafetensorsIndex> weight_map = ReadIndex(*path);
  if (!weight_map.ok()) return {};
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : *weight_map) shards.insert(shard);
  shards.erase(std::string(kSingleFile));
  return {shards.begin(), shards.end()};
}

// The tensors of `shard` are all promised to be there.
absl::Status CheckShard(const std::string& index, const SafetensorsIndex& weight_map, const std::string& name,
                        const Safetensors& shard) {
  for (const TensorView& tensor : shard.tensors()) {
    const auto found = weight_map.find(tensor.name);
    if (found != weight_map.end() && found->second == name) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        shard.name(), ": holds tensor ", Quote(tensor.name), ", which ", index,
        found == weight_map.end() ? " does not name" : absl::StrCat(" expects in ", Quote(found->second))));
  }
  return absl::OkStatus();
}

// Names a tensor that is in none of the shards. REQUIRES: there is one.
absl::Status MissingTensor(const std::string& index, const SafetensorsIndex& weight_map,
                           const std::vector<Safetensors>& shards) {
  const auto missing = std::find_if(weight_map.begin(), weight_map.end(), [&](const auto& entry) {
    return std::none_of(shards.begin(), shards.end(),
                        [&](const Safetensors& shard) { return shard.FindTensor(entry.first) != nullptr; });
  });
  SLUICE_CHECK(missing != weight_map.end());
  return absl::InvalidArgumentError(absl::StrCat(index, ": tensor ", Quote(missing->first), " is said to be in ",
                                                 Quote(missing->second), ", which does not hold it"));
}

absl::StatusOr<std::vector<Safetensors>> OpenShards(const ModelFolder& folder, const std::string& index) {
  SLUICE_ASSIGN_OR_RETURN(const SafetensorsIndex weight_map, ReadIndex(index));
  std::map<std::string, std::string> a_tensor_of;  // shard -> one of its tensors, for messages
  for (const auto& [tensor, shard] : weight_map) a_tensor_of.try_emplace(shard, tensor);

  std::vector<Safetensors> shards;
  size_t num_tensors = 0;
  for (const auto& [shard, tensor] : a_tensor_of) {
    const absl::StatusOr<std::string> path = folder.Find(shard);
    const bool is_safetensors = absl::EndsWith(shard, ".safetensors");
    if (!path.ok() && (is_safetensors || !absl::IsNotFound(path.status()))) {
      return absl::Status(path.status().code(),
                          absl::StrCat(index, ": names ", a_tensor_of.size(), " files; tensor ", Quote(tensor),
                                       " is said to be in ", Quote(shard), "; ", path.status().message()));
    }
    if (!is_safetensors) {
      return absl::InvalidArgumentError(absl::StrCat(index, ": tensor ", Quote(tensor), " is said to be in ",
                                                     Quote(shard), "; expected a file called *.safetensors"));
    }
    SLUICE_ASSIGN_OR_RETURN(Safetensors file, Safetensors::Open(*path));
    SLUICE_RETURN_IF_ERROR(CheckShard(index, weight_map, shard, file));
    num_tensors += file.tensors().size();
    shards.push_back(std::move(file));
  }
  // Names are unique within a shard and every one of them is in the map: too few means that one is missing.
  if (num_tensors < weight_map.size()) return MissingTensor(index, weight_map, shards);
  return shards;
}

// The single file, although there may be an index of others beside it.
absl::StatusOr<std::vector<Safetensors>> OpenSingle(const ModelFolder& folder, std::vector<std::string>* warnings) {
  const std::vector<std::string> shards = OtherShards(folder);
  absl::StatusOr<std::string> path = folder.Find(kSingleFile);
  absl::StatusOr<Safetensors> file = path.ok() ? Safetensors::Open(*path) : path.status();
  if (!file.ok()) {
    if (shards.empty()) return file.status();
    return absl::Status(file.status().code(), absl::StrCat(file.status().message(), "; without it the ", shards.size(),
                                                           " files that ", kIndex, " names would be read"));
  }
  if (!shards.empty()) {
    warnings->push_back(absl::StrCat(*path, ": is read, as in Hugging Face's libraries, and the ", shards.size(),
                                     " files that ", kIndex, " names are not: ", QuoteList(shards)));
  }
  std::vector<Safetensors> files;
  files.push_back(*std::move(file));
  return files;
}

}  // namespace

absl::StatusOr<SafetensorsIndex> ParseSafetensorsIndex(absl::string_view text, const std::string& name) {
  if (text.size() > kMaxIndexBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": has ", text.size(), " bytes, expected at most ", kMaxIndexBytes));
  }
  IndexReader reader(name);
  SLUICE_RETURN_IF_ERROR(reader.Read(text));
  if (!reader.had_weight_map()) return absl::InvalidArgumentError(absl::StrCat(name, ": key 'weight_map' is missing"));
  return reader.TakeWeightMap();
}

absl::StatusOr<std::vector<Safetensors>> OpenSafetensors(const ModelFolder& folder,
                                                         std::vector<std::string>* warnings) {
  if (folder.Has(kSingleFile)) return OpenSingle(folder, warnings);
  if (folder.Has(kIndex)) {
    SLUICE_ASSIGN_OR_RETURN(const std::string path, folder.Find(kIndex));
    return OpenShards(folder, path);
  }
  const std::vector<std::string> others = folder.NamesThatEndIn(".safetensors");
  return absl::NotFoundError(absl::StrCat(folder.path(), ": has neither ", kSingleFile, " nor ", kIndex,
                                          others.empty()
                                              ? "; weights in other formats (pytorch_model.bin) are not read"
                                              : absl::StrCat(", which would say what is in its ", QuoteList(others))));
}

}  // namespace sluice
