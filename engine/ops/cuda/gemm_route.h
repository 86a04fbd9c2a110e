// Which rows of a step go through the library for products (gemm_library.h): those at prompt positions of sequences
// whose prompt has so many tokens and more. The request and the configuration decide, never the batch, the chunk or
// what has been computed before, so a row takes the same route alone, in company, in pieces and after a preemption.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/ops/cuda/gemm_library.h"
#include "engine/ops/ops.h"

namespace sluice {

// Consecutive rows of a step that go the same way.
struct RowRun {
  int32_t first = 0;
  int32_t count = 0;  // > 0
  bool by_library = false;
  bool operator==(const RowRun&) const = default;
};

class GemmRoute {
 public:
  // All rows go through our own kernels.
  GemmRoute() = default;
  // Prompts of `from` tokens and more go through the library. REQUIRES: from > 0.
  GemmRoute(std::unique_ptr<GemmLibrary> library, int32_t from);

  GemmLibrary* library() const { return library_.get(); }  // or null
  int32_t from() const { return from_; }

  // REQUIRES with a library: batch.prompt_lens has a length for each sequence.
  void BeginStep(const BatchView& batch);
  // A step of nothing but padding: all by the library, if there is one, or none.
  void BeginPadding(int32_t num_rows, bool by_library);

  // Of the step: its rows in order, as few runs as there can be. Without a library there are none, and nobody asks.
  std::span<const RowRun> runs() const { return runs_; }
  bool uses_library() const { return uses_library_; }

 private:
  void Add(int32_t first, int32_t count, bool by_library);

  std::unique_ptr<GemmLibrary> library_;
  int32_t from_ = INT32_MAX;
  std::vector<RowRun> runs_;
  bool uses_library_ = false;
};

}  // namespace sluice
