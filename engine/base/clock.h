// Monotonic time, virtual so that scheduler and engine tests can turn the hands themselves.
#pragma once

#include <cstdint>

namespace sluice {

class Clock {
 public:
  virtual ~Clock() = default;
  // Nanoseconds of a clock that never goes back; its zero has no meaning. Thread-safe.
  virtual int64_t NowNs() const = 0;

  // The machine's steady clock. Lives for ever.
  static const Clock& Real();
};

}  // namespace sluice
