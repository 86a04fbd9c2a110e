#include "engine/base/available_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace sluice {
namespace {

constexpr int64_t kUnknownMemory = int64_t{1} << 30;
constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

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

int64_t AvailableMemoryBytes() {
  const int64_t available = std::min(MachineAvailable(), GroupsAvailable());
  return available == kNoLimit ? kUnknownMemory : available;
}

}  // namespace sluice
