// The atomics of lock-free code as the machine has them. Such code takes them as a parameter, so that a test can run the
// same code with atomics of its own and drive it through every order of events (tests/base/interleavings.h).
#pragma once

#include <atomic>
#include <chrono>

namespace sluice {

// Lets a polling loop leave the core's units to the other hardware thread.
inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#endif
}

struct NativeAtomics {
  template <class T>
  using Atomic = std::atomic<T>;

  // Memory that no two threads use at a time unless both read: a claim that the test's counterpart verifies.
  template <class T>
  class Plain {
   public:
    void Set(const T& value) { value_ = value; }
    const T& Get() const { return value_; }

   private:
    T value_{};
  };

  // Polls until done() or until `limit` has passed; returns the last done().
  template <class Done>
  static bool SpinUntil(std::chrono::nanoseconds limit, Done done) {
    if (done()) return true;
    if (limit.count() == 0) return false;
    const auto deadline = std::chrono::steady_clock::now() + limit;
    do {
      for (int i = 0; i < 16; ++i) {
        Pause();
        if (done()) return true;
      }
    } while (std::chrono::steady_clock::now() < deadline);
    return false;
  }
};

}  // namespace sluice
