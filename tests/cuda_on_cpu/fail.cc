#include "tests/cuda_on_cpu/fail.h"

#include <cstdio>
#include <cstdlib>

#include "tests/cuda_on_cpu/thread.h"

namespace sluice::cuda_on_cpu {

void Fail(const char* what, const SourceLine& where) {
  std::fprintf(stderr, "cuda_on_cpu: %s at %s:%u", what, where.file_name(), static_cast<unsigned>(where.line()));
  if (current != nullptr) {
    const uint3 block = current->block_index;
    std::fprintf(stderr, " (block %u,%u,%u thread %u)", block.x, block.y, block.z, current->linear);
  }
  std::fputc('\n', stderr);
  std::abort();
}

}  // namespace sluice::cuda_on_cpu
