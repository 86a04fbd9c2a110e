#include "tests/cuda_on_cpu/fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>

#include "tests/cuda_on_cpu/sanitizer.h"

extern "C" void SluiceSwitchStack(void** save_stack_pointer, void* stack_pointer);

// Pushes what a function must preserve, swaps stacks, pops the other's. The two control words of floating point are the
// same for all fibers and stay.
asm(R"(
.text
.globl SluiceSwitchStack
.type SluiceSwitchStack,@function
SluiceSwitchStack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp,(%rdi)
  movq %rsi,%rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size SluiceSwitchStack,.-SluiceSwitchStack
.section .note.GNU-stack,"",@progbits
.text
)");

namespace sluice::cuda_on_cpu {
namespace {

constexpr size_t kStackBytes = 256 << 10;  // touched pages only; sanitized frames are large
constexpr size_t kGuardBytes = 4096;
constexpr int kPreservedRegisters = 6;
constexpr unsigned kTsanNoSync = 1;  // a switch orders nothing: only barriers and warp operations do

// The fiber that was left by the switch in progress; its successor completes the switch.
constinit thread_local Fiber* left = nullptr;
constinit thread_local Fiber* entered = nullptr;

}  // namespace

Fiber::~Fiber() {
  if (stack_ == nullptr) return;
  if (UnderTsan() && tsan_fiber_ != nullptr) __tsan_destroy_fiber(tsan_fiber_);
  munmap(stack_, kStackBytes);
}

void Fiber::StandForThisThread() {
  if (UnderTsan()) tsan_fiber_ = __tsan_get_current_fiber();
}

void Fiber::Prepare(void (*entry)(), unsigned number) {
  if (stack_ == nullptr) {
    void* stack =
        mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stack == MAP_FAILED) std::abort();
    mprotect(stack, kGuardBytes, PROT_NONE);  // an overflow faults
    stack_ = static_cast<char*>(stack);
    bottom_ = stack_ + kGuardBytes;
    bytes_ = kStackBytes - kGuardBytes;
  }
  Unpoison(bottom_, bytes_);  // of frames that a finished fiber never returned from
  if (UnderTsan() && tsan_fiber_ == nullptr) tsan_fiber_ = __tsan_create_fiber(0);
  auto** top = reinterpret_cast<void**>(stack_ + kStackBytes - 64 - number % 32 * 128);
  *--top = nullptr;  // entry's return address: it has none, and finds the stack aligned as after a call
  *--top = reinterpret_cast<void*>(entry);
  for (int i = 0; i < kPreservedRegisters; ++i) *--top = nullptr;
  stack_pointer_ = top;
  fake_stack_ = nullptr;
}

void Fiber::Leave(Fiber& other, bool for_good) {
  left = this;
  entered = &other;
  if (__sanitizer_start_switch_fiber)
    __sanitizer_start_switch_fiber(for_good ? nullptr : &fake_stack_, other.bottom_, other.bytes_);
  if (UnderTsan()) __tsan_switch_to_fiber(other.tsan_fiber_, kTsanNoSync);
  SluiceSwitchStack(&stack_pointer_, other.stack_pointer_);
}

// Runs on the stack that was switched to. AddressSanitizer tells the bounds of the one that was left, which only the
// host thread's fiber does not know itself.
void Fiber::Begin() {
  if (!__sanitizer_finish_switch_fiber) return;
  const void* bottom = nullptr;
  size_t bytes = 0;
  __sanitizer_finish_switch_fiber(entered->fake_stack_, &bottom, &bytes);
  if (left->stack_ == nullptr) {
    left->bottom_ = bottom;
    left->bytes_ = bytes;
  }
}

void Fiber::SwitchTo(Fiber& other) {
  Leave(other, false);
  Begin();
}

void Fiber::FinishInto(Fiber& other) {
  Leave(other, true);
  std::abort();
}

}  // namespace sluice::cuda_on_cpu
