// cp.async, as late as the machine may do it: the destination is NaN from the call until the thread waits for the
// group. A source or a destination that changes in between is reported.
#pragma once

#include "tests/cuda_on_cpu/fail.h"

namespace sluice::cuda_on_cpu {

// 16 bytes of global memory to shared memory; zeros instead where `zero_fill`.
void BeginAsyncCopy(void* shared, const void* global, bool zero_fill, const SourceLine& where);
void CommitAsyncCopies();
// Until at most `groups_left` of this thread's groups, the youngest, are not done.
void WaitForAsyncCopies(unsigned groups_left);

}  // namespace sluice::cuda_on_cpu
