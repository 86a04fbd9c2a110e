// Which rows of a step go through the library for products (gemm_library.h): those with kRouteLibraryProducts
// (base/numerics.h).
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
  // REQUIRES: a library.
  explicit GemmRoute(std::unique_ptr<GemmLibrary> library);

  GemmLibrary* library() const { return library_.get(); }  // or null

  void BeginStep(const BatchView& batch);
  // A step of nothing but padding: all by the library, if there is one, or none.
  void BeginPadding(int32_t num_rows, bool by_library);

  // Of the step: its rows in order, as few runs as there can be. Without a library there are none, and nobody asks.
  std::span<const RowRun> runs() const { return runs_; }
  bool uses_library() const { return uses_library_; }

 private:
  void Add(int32_t first, int32_t count, bool by_library);

  std::unique_ptr<GemmLibrary> library_;
  std::vector<RowRun> runs_;
  bool uses_library_ = false;
};

}  // namespace sluice
