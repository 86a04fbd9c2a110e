#include "server/process_stats.h"

#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <system_error>

namespace sluice {
namespace {

// Sets the two members that are memory.
void ReadMemory(ProcessStats* stats) {
  double virtual_pages = 0, resident_pages = 0;
  std::ifstream("/proc/self/statm") >> virtual_pages >> resident_pages;
  const double page_bytes = double(sysconf(_SC_PAGESIZE));
  stats->virtual_bytes = virtual_pages * page_bytes;
  stats->resident_bytes = resident_pages * page_bytes;
}

}  // namespace

size_t ResidentBytes() {
  ProcessStats stats;
  ReadMemory(&stats);
  return size_t(stats.resident_bytes);
}

ProcessStats ReadProcessStats() {
  ProcessStats stats;
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) { return double(time.tv_sec) + 1e-6 * double(time.tv_usec); };
  stats.cpu_seconds = seconds(usage.ru_utime) + seconds(usage.ru_stime);
  ReadMemory(&stats);
  std::error_code error;
  for (std::filesystem::directory_iterator it("/proc/self/fd", error), end; !error && it != end; it.increment(error)) {
    ++stats.open_fds;
  }
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  stats.max_fds = double(limit.rlim_cur);
  return stats;
}

}  // namespace sluice
