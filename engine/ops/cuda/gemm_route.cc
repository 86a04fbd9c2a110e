#include "engine/ops/cuda/gemm_route.h"

#include <utility>

#include "engine/base/check.h"
#include "engine/ops/routed_rows.h"

namespace sluice {

GemmRoute::GemmRoute(std::unique_ptr<GemmLibrary> library) : library_(std::move(library)) {
  SLUICE_CHECK(library_ != nullptr);
}

void GemmRoute::BeginStep(const BatchView& batch) {
  runs_.clear();
  uses_library_ = false;
  if (library_ == nullptr) return;
  for (size_t s = 0; s < batch.context_lens.size(); ++s) {
    const int32_t first = batch.row_starts[s], end = batch.row_starts[s + 1];
    const int32_t by_library = RoutedRows(batch, s, kRouteLibraryProducts);
    Add(first, by_library, true);
    Add(first + by_library, end - first - by_library, false);
  }
}

void GemmRoute::BeginPadding(int32_t num_rows, bool by_library) {
  runs_.clear();
  uses_library_ = false;
  if (library_ != nullptr) Add(0, num_rows, by_library);
}

void GemmRoute::Add(int32_t first, int32_t count, bool by_library) {
  if (count == 0) return;
  uses_library_ |= by_library;
  if (!runs_.empty() && runs_.back().by_library == by_library) {
    runs_.back().count += count;
  } else {
    runs_.push_back({first, count, by_library});
  }
}

}  // namespace sluice
