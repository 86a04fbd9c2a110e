// cp.async, as late as the machine may do it: the destination is NaN from the call until the thread waits for the
// group. A source or a destination that changes in between is reported.
#pragma once

#include <cstddef>
#include <vector>

#include "tests/cuda_on_cpu/fail.h"

namespace sluice::cuda_on_cpu {

// 16 bytes of global memory to shared memory; zeros instead where `zero_fill`.
void BeginAsyncCopy(void* shared, const void* global, bool zero_fill, const SourceLine& where);
void CommitAsyncCopies();
// Until at most `groups_left` of this thread's groups, the youngest, are not done.
void WaitForAsyncCopies(size_t groups_left);

// What one thread has begun and not waited for.
class AsyncCopies {
 public:
  void Begin(void* shared, const void* global, bool zero_fill, const SourceLine& where);
  void Commit();
  void Wait(size_t groups_left);
  void RequireNone() const;  // of a thread that exits

 private:
  struct Copy {
    static constexpr size_t kBytes = 16;
    void* destination;
    const void* source;
    bool zero_fill;
    unsigned char seen[kBytes];  // the source as it was when the copy began
    SourceLine where;
  };
  static void Finish(const Copy& copy);

  std::vector<Copy> copies_;    // oldest first
  std::vector<size_t> groups_;  // how many of them each committed group has, oldest first
  size_t committed_ = 0;        // the sum of groups_
};

}  // namespace sluice::cuda_on_cpu
