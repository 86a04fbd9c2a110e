// cuBLASLt's functions without a GPU, as far as the engine uses them: the same descriptors, layouts by columns and
// algorithms, carried out by the emulation in stream order. The first algorithms that it offers are those that must not
// be chosen: their results depend on the number of columns, as split-K's do, or they do not take every number. For a
// matrix of [64, 40] there is no other, as there may be none for any shape in the library itself.
#pragma once

#include <cstdint>

#include "engine/ops/cuda/cublaslt.h"

namespace sluice {

CublasLtApi EmulatedCublasLt();

// Of this host thread since it started.
struct CublasLtCounts {
  int64_t searches = 0;  // cublasLtMatmulAlgoGetHeuristic
  int64_t products = 0;  // cublasLtMatmul
  int64_t objects = 0;   // handles and descriptors that are alive
};
CublasLtCounts CublasLtCountsSoFar();

}  // namespace sluice
