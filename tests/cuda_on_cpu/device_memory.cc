#include "tests/cuda_on_cpu/device_memory.h"

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "tests/cuda_on_cpu/sanitizer.h"

namespace sluice::cuda_on_cpu {
namespace {

constexpr size_t kGuardBytes = 256;
constexpr unsigned char kGuard = 0xa5;

// [front guard][bytes][back guard, up to the end of the padding]
size_t BackGuardBytes(size_t bytes) {
  return kGuardBytes + (kDeviceAlignment - bytes % kDeviceAlignment) % kDeviceAlignment;
}

struct Allocations {
  std::mutex mutex;
  std::map<unsigned char*, size_t> bytes;  // by start
};

Allocations& All() {
  static Allocations allocations;
  return allocations;
}

void ForEachGuard(unsigned char* start, size_t bytes, auto&& visit) {
  visit(start - kGuardBytes, kGuardBytes);
  visit(start + bytes, BackGuardBytes(bytes));
}

void CheckGuards(unsigned char* start, size_t bytes, const SourceLine& where) {
  ForEachGuard(start, bytes, [&](const unsigned char* guard, size_t size) {
    size_t intact = 0;
    while (intact < size && guard[intact] == kGuard) ++intact;
    Require(intact == size,
            guard < start ? "device memory was written before the start of an allocation"
                          : "device memory was written past the end of an allocation",
            where);
  });
}

}  // namespace

void* AllocateDevice(size_t bytes) {
  auto* guard =
      static_cast<unsigned char*>(std::aligned_alloc(kDeviceAlignment, kGuardBytes + bytes + BackGuardBytes(bytes)));
  if (guard == nullptr) Fail("no memory for the device", SourceLine::current());
  unsigned char* start = guard + kGuardBytes;
  ForEachGuard(start, bytes, [](unsigned char* guard, size_t size) {
    std::memset(guard, kGuard, size);
    Poison(guard, size);
  });
  std::memset(start, 0xff, bytes);
  Allocations& all = All();
  const std::lock_guard lock(all.mutex);
  all.bytes.emplace(start, bytes);
  return start;
}

void FreeDevice(void* memory) {
  if (memory == nullptr) return;
  auto* start = static_cast<unsigned char*>(memory);
  Allocations& all = All();
  {
    const std::lock_guard lock(all.mutex);
    const auto found = all.bytes.find(start);
    Require(found != all.bytes.end(), "FreeDevice of what AllocateDevice did not give", SourceLine::current());
    CheckGuards(start, found->second, SourceLine::current());
    ForEachGuard(start, found->second, [](unsigned char* guard, size_t size) { Unpoison(guard, size); });
    all.bytes.erase(found);
  }
  std::free(start - kGuardBytes);
}

void FillWithNan(void* start, size_t bytes) { std::memset(start, 0xff, bytes); }

void CheckDeviceMemory(const SourceLine& where) {
  Allocations& all = All();
  const std::lock_guard lock(all.mutex);
  for (const auto& [start, bytes] : all.bytes) CheckGuards(start, bytes, where);
}

}  // namespace sluice::cuda_on_cpu
