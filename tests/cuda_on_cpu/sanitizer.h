// What AddressSanitizer and ThreadSanitizer must be told about fibers. The symbols are weak: the runtime of the
// emulation is compiled once, without instrumentation, and works in a plain program as well as in a sanitized one.
#pragma once

#include <cstddef>

extern "C" {
void __sanitizer_start_switch_fiber(void** fake_stack, const void* bottom, size_t bytes) __attribute__((weak));
void __sanitizer_finish_switch_fiber(void* fake_stack, const void** bottom, size_t* bytes) __attribute__((weak));
void __asan_poison_memory_region(const volatile void* start, size_t bytes) __attribute__((weak));
void __asan_unpoison_memory_region(const volatile void* start, size_t bytes) __attribute__((weak));
void* __tsan_get_current_fiber() __attribute__((weak));
void* __tsan_create_fiber(unsigned flags) __attribute__((weak));
void __tsan_destroy_fiber(void* fiber) __attribute__((weak));
void __tsan_switch_to_fiber(void* fiber, unsigned flags) __attribute__((weak));
void __tsan_acquire(void* address) __attribute__((weak));
void __tsan_release(void* address) __attribute__((weak));
}

namespace sluice::cuda_on_cpu {

inline bool UnderTsan() { return __tsan_create_fiber != nullptr; }

// All that a thread did before Release(x) happened before all that another does after its later Acquire(x).
inline void Release(void* address) {
  if (__tsan_release) __tsan_release(address);
}
inline void Acquire(void* address) {
  if (__tsan_acquire) __tsan_acquire(address);
}

inline void Poison(const void* start, size_t bytes) {
  if (__asan_poison_memory_region) __asan_poison_memory_region(start, bytes);
}
inline void Unpoison(const void* start, size_t bytes) {
  if (__asan_unpoison_memory_region) __asan_unpoison_memory_region(start, bytes);
}

}  // namespace sluice::cuda_on_cpu
