// Memory of the host.
#pragma once

#include <cstdint>

namespace sluice {

// What the process may still take: the smaller of the machine's available memory (/proc/meminfo) and what is left under
// the memory limit of the process's control group (v2 and v1). Where neither can be read: 1 GiB.
int64_t AvailableMemoryBytes();

}  // namespace sluice
