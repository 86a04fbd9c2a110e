#include "engine/base/cpu_info.h"

#include <sched.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace sluice {
namespace {

int NumAllowedCpus() {
  // Machines with more CPUs than cpu_set_t holds need a larger set: the call says EINVAL until it is large enough.
  for (size_t cpus = CPU_SETSIZE; cpus <= (size_t{1} << 18); cpus *= 2) {
    cpu_set_t* set = CPU_ALLOC(cpus);
    if (set == nullptr) break;
    const size_t bytes = CPU_ALLOC_SIZE(cpus);
    const bool ok = sched_getaffinity(0, bytes, set) == 0;
    const int count = ok ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (ok) return std::max(count, 1);
  }
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Quota of one group in CPUs, 0 for none. v2: "cpu.max" holds "QUOTA PERIOD" or "max PERIOD".
double QuotaV2(const std::string& group) {
  const std::vector<std::string> words = absl::StrSplit(FirstLine(group + "/cpu.max"), ' ', absl::SkipEmpty());
  double quota = 0, period = 0;
  if (words.size() != 2 || !absl::SimpleAtod(words[0], &quota) || !absl::SimpleAtod(words[1], &period)) return 0;
  return quota > 0 && period > 0 ? quota / period : 0;
}

// v1: a quota of -1 is none.
double QuotaV1(const std::string& group) {
  double quota = 0, period = 0;
  if (!absl::SimpleAtod(FirstLine(group + "/cpu.cfs_quota_us"), &quota)) return 0;
  if (!absl::SimpleAtod(FirstLine(group + "/cpu.cfs_period_us"), &period)) return 0;
  return quota > 0 && period > 0 ? quota / period : 0;
}

// The tightest quota of `path` and all groups above it in the hierarchy mounted at `mount`. Inside a container the path
// is often the host's and does not exist here; the mount's own root is then the container's group.
double TightestQuota(const std::string& mount, std::string path, double (*quota_of)(const std::string&)) {
  double tightest = 0;
  for (;;) {
    const double quota = quota_of(absl::StrCat(mount, path));
    if (quota > 0 && (tightest == 0 || quota < tightest)) tightest = quota;
    if (path.empty()) return tightest;
    path.resize(path.find_last_of('/') == std::string::npos ? 0 : path.find_last_of('/'));
  }
}

#if defined(__x86_64__)
// Two features that clang 16's __builtin_cpu_supports does not know. Whether the system saves the registers is what
// "avx2" says.
bool HasF16c() {
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) != 0;
}

bool HasAvxVnni() {
  unsigned a, b, c, d;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & bit_AVXVNNI) != 0;
}
#endif

}  // namespace

double CgroupCpuQuota(const std::string& root) {
  const std::string mounts = root + "/sys/fs/cgroup";
  std::ifstream groups(root + "/proc/self/cgroup");
  double tightest = 0;
  for (std::string line; std::getline(groups, line);) {
    // "0::/path" (v2), "4:cpu,cpuacct:/path" (v1)
    const std::vector<std::string> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3) continue;
    const std::string path = fields[2] == "/" ? "" : fields[2];
    const std::vector<std::string> controllers = absl::StrSplit(fields[1], ',');
    double quota = 0;
    if (fields[1].empty()) {
      quota = TightestQuota(mounts, path, QuotaV2);
    } else if (std::find(controllers.begin(), controllers.end(), "cpu") != controllers.end()) {
      quota = TightestQuota(absl::StrCat(mounts, "/", fields[1]), path, QuotaV1);
      if (quota == 0) quota = TightestQuota(mounts + "/cpu", path, QuotaV1);
    }
    if (quota > 0 && (tightest == 0 || quota < tightest)) tightest = quota;
  }
  return tightest;
}

int DefaultThreadCount(const std::string& root) {
  const int cpus = NumAllowedCpus();
  const double quota = CgroupCpuQuota(root);
  if (quota <= 0 || quota >= cpus) return cpus;
  return std::max(1, static_cast<int>(quota));
}

const char* IsaName(Isa isa) {
  switch (isa) {
    case Isa::kPortable:
      return "portable";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx2Vnni:
      return "avx2-vnni";
    case Isa::kAvx512:
      return "avx512";
  }
  return "?";
}

std::vector<Isa> SupportedIsas() {
  std::vector<Isa> isas = {Isa::kPortable};
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && HasF16c();
  if (avx2) isas.push_back(Isa::kAvx2);
  if (avx2 && HasAvxVnni()) isas.push_back(Isa::kAvx2Vnni);
  if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vnni")) {
    isas.push_back(Isa::kAvx512);
  }
#endif
  return isas;
}

Isa BestIsa() { return SupportedIsas().back(); }

}  // namespace sluice
