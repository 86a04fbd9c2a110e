// What every Prometheus client library publishes of its process.
#pragma once

#include <cstddef>

namespace sluice {

struct ProcessStats {
  double cpu_seconds = 0;  // user and system
  double virtual_bytes = 0, resident_bytes = 0;
  double start_time_seconds = 0;  // since the Unix epoch
  double open_fds = 0, max_fds = 0;
};

// Of this process, now, but for its start, which is for the caller to remember. What the system does not tell is 0.
ProcessStats ReadProcessStats();

// The resident part alone, for who looks often: the rest lists all descriptors.
size_t ResidentBytes();

}  // namespace sluice
