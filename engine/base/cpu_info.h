// What this machine lets us use: cores and instruction sets.
#pragma once

#include <string>
#include <vector>

#include "engine/base/isa.h"

namespace sluice {

// How many threads to compute with when nobody says: the cores this process may run on (affinity), and no more than its
// cgroup's CPU quota (v1 or v2, the tightest of its group and the groups above), rounded down, at least 1. Down,
// because a group that uses up its quota stops all of its threads at once for the rest of the period, which is far
// worse than one thread less. `root` is prepended to /proc/self/cgroup and /sys/fs/cgroup.
int DefaultThreadCount(const std::string& root = "");

// The quota alone, in CPUs (2.5 for 250 ms per 100 ms); 0 when there is none.
double CgroupCpuQuota(const std::string& root = "");

// "portable", "avx2", "avx2-vnni", "avx512".
const char* IsaName(Isa isa);

// Those that this CPU and operating system can run, ascending; kPortable is always among them.
std::vector<Isa> SupportedIsas();

// The fastest of SupportedIsas().
Isa BestIsa();

}  // namespace sluice
