// For objects that a library hands from one of its threads to another, under locks that ThreadSanitizer does not see
// because the library is not built for it: what the library promises is said here instead. Whoever takes an object over
// sees all that was done before it was handed over. Nothing in other builds.
#pragma once

#if defined(__SANITIZE_THREAD__)
extern "C" void __tsan_acquire(void* address);
extern "C" void __tsan_release(void* address);
#endif

namespace sluice {

inline void HandOver([[maybe_unused]] void* object) {
#if defined(__SANITIZE_THREAD__)
  __tsan_release(object);
#endif
}

inline void TakeOver([[maybe_unused]] void* object) {
#if defined(__SANITIZE_THREAD__)
  __tsan_acquire(object);
#endif
}

}  // namespace sluice
