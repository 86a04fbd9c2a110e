// A fiber: a stack of its own that one host thread can run on in turn with others. x86-64 Linux.
#pragma once

#include <cstddef>

namespace sluice::cuda_on_cpu {

class Fiber {
 public:
  // A fiber without a stack stands for the stack of the host thread itself.
  Fiber() = default;
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Makes the next SwitchTo begin at `entry`, which must never return. `number` spreads the stacks over cache sets.
  void Prepare(void (*entry)(), unsigned number);

  // Leaves this fiber, which runs now, for `other`; returns when somebody switches back.
  void SwitchTo(Fiber& other);
  // Leaves it for good.
  [[noreturn]] void FinishInto(Fiber& other);

  // The first thing that `entry` calls.
  static void Begin();

  // For the fiber that stands for the host thread, before the first switch.
  void StandForThisThread();

 private:
  void Leave(Fiber& other, bool for_good);

  void* stack_pointer_ = nullptr;
  char* stack_ = nullptr;
  const void* bottom_ = nullptr;  // what AddressSanitizer is told of the stack
  size_t bytes_ = 0;
  void* fake_stack_ = nullptr;
  void* tsan_fiber_ = nullptr;
};

}  // namespace sluice::cuda_on_cpu
