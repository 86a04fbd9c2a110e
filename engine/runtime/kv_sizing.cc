#include "engine/runtime/kv_sizing.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/base/status_macros.h"
#include "engine/model/decoder.h"
#include "engine/model/kv_groups.h"
#include "engine/model/summary.h"
#include "engine/scheduler/kv_blocks.h"

namespace sluice {
namespace {

constexpr int64_t kAutoLimit = int64_t{8} << 30;
constexpr int64_t kUnknownMemory = int64_t{1} << 30;
constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

std::string Bytes(int64_t bytes) { return absl::StrCat(bytes, " bytes (", FormatBytes(bytes), ")"); }

absl::StatusOr<int32_t> WantedLength(const ModelSpec& spec, const KvSizingOptions& options) {
  if (!options.max_model_len.has_value()) return spec.max_position;
  const int32_t longest = LongestContext(spec);
  if (*options.max_model_len < 1 || *options.max_model_len > longest) {
    const std::string limit =
        longest == spec.max_position
            ? absl::StrCat("the model's trained context of ", longest)
            : absl::StrCat(longest, ", to which dynamic RoPE stretches the model's trained context");
    return absl::InvalidArgumentError(
        absl::StrCat("--max-model-len is ", *options.max_model_len, ", expected 1 to ", limit));
  }
  return *options.max_model_len;
}

// First number of a file such as memory.max; nothing for "max", an absent file, or a limit too large to be one.
std::optional<int64_t> ReadNumber(const std::string& path) {
  std::ifstream file(path);
  std::string text;
  int64_t value;
  if (!(file >> text) || !absl::SimpleAtoi(text, &value)) return std::nullopt;
  if (value < 0 || value > (int64_t{1} << 60)) return std::nullopt;
  return value;
}

int64_t MachineAvailable() {
  std::ifstream file("/proc/meminfo");
  std::string line;
  while (std::getline(file, line)) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    int64_t kib;
    if (words.size() >= 2 && words[0] == "MemAvailable:" && absl::SimpleAtoi(words[1], &kib)) return kib * 1024;
  }
  return kNoLimit;
}

// What is left below the limit of the group in `directory`; page cache that can be given back counts as left.
int64_t LeftInGroup(const std::string& directory, absl::string_view limit_file, absl::string_view usage_file) {
  const std::optional<int64_t> limit = ReadNumber(absl::StrCat(directory, "/", limit_file));
  const std::optional<int64_t> usage = ReadNumber(absl::StrCat(directory, "/", usage_file));
  if (!limit.has_value() || !usage.has_value()) return kNoLimit;
  int64_t reclaimable = 0;
  std::ifstream stat(directory + "/memory.stat");
  std::string key;
  int64_t value;
  while (stat >> key >> value) {
    if (key == "inactive_file" || key == "total_inactive_file") reclaimable = value;
  }
  return std::max<int64_t>(0, *limit - *usage + reclaimable);
}

// The process's own group and every one above it: any of them may carry the limit.
int64_t GroupsAvailable() {
  int64_t left = kNoLimit;
  std::ifstream file("/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    const bool v2 = parts[1].empty();
    if (!v2 && parts[1] != "memory") continue;
    const std::string root = v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    std::string path = parts[2] == "/" ? "" : parts[2];
    while (true) {
      left = std::min(left, v2 ? LeftInGroup(root + path, "memory.max", "memory.current")
                               : LeftInGroup(root + path, "memory.limit_in_bytes", "memory.usage_in_bytes"));
      if (path.empty()) break;
      path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
    }
  }
  return left;
}

}  // namespace

int64_t KvBlockBytes(const ModelSpec& spec, int32_t block_size, KvDType dtype) {
  return MakeKvCacheShape(spec, /*num_blocks=*/1, block_size, dtype).bytes();
}

absl::StatusOr<KvSizing> SizeKvCache(const ModelSpec& spec, const KvSizingOptions& options, int64_t available_bytes) {
  SLUICE_ASSIGN_OR_RETURN(const int32_t length, WantedLength(spec, options));
  if (options.kv_memory_bytes.has_value() && *options.kv_memory_bytes <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--kv-memory is ", *options.kv_memory_bytes, ", expected a positive number of bytes or auto"));
  }
  const int64_t block_bytes = KvBlockBytes(spec, options.block_size, options.dtype);
  EngineOptions engine;  // what the scheduler will count with
  engine.kv_groups = MakeKvGroups(spec).masks;
  engine.block_size = options.block_size;
  engine.max_num_batched_tokens = options.max_num_batched_tokens;
  engine.max_model_len = length;
  const int64_t blocks_per_sequence = PeakBlocks(length, engine);
  int64_t budget;
  if (options.kv_memory_bytes.has_value()) {
    budget = *options.kv_memory_bytes;
    if (budget > available_bytes) {
      return absl::ResourceExhaustedError(absl::StrCat("--kv-memory asks for ", Bytes(budget), ", but only ",
                                                       Bytes(available_bytes), " are available; lower --kv-memory"));
    }
  } else {
    // Compared in blocks: the product of blocks and bytes could leave 64 bits.
    const int64_t half = std::min(available_bytes / 2, kAutoLimit);
    const int64_t wanted_blocks = blocks_per_sequence * options.max_num_seqs;
    budget = wanted_blocks > half / block_bytes ? half : wanted_blocks * block_bytes;
  }
  const int64_t num_blocks = std::min<int64_t>(budget / block_bytes, INT32_MAX / options.block_size);
  KvSizing sizing{int32_t(num_blocks), length, num_blocks * block_bytes};
  if (num_blocks >= blocks_per_sequence) return sizing;
  engine.num_blocks = sizing.num_blocks;
  sizing.max_model_len = LongestSequence(engine);
  if (options.max_model_len.has_value() || sizing.max_model_len == 0) {
    const int64_t needed =
        options.max_model_len.has_value() ? blocks_per_sequence : PeakBlocks(options.block_size, engine);
    return absl::ResourceExhaustedError(absl::StrCat(
        "one sequence of ", options.max_model_len.has_value() ? length : options.block_size, " tokens needs ",
        Bytes(needed * block_bytes), " of KV cache, but ", Bytes(budget), " are available for it; ",
        options.kv_memory_bytes.has_value() ? "raise --kv-memory" : "set --kv-memory",
        options.max_model_len.has_value() ? " or lower --max-model-len" : ""));
  }
  return sizing;
}

int64_t AvailableMemoryBytes() {
  const int64_t available = std::min(MachineAvailable(), GroupsAvailable());
  return available == kNoLimit ? kUnknownMemory : available;
}

}  // namespace sluice
