// Which rows of a step take a route.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/base/numerics.h"
#include "engine/ops/ops.h"

namespace sluice {

// How many rows of a sequence in a step have `route`. They come first: a request's routed positions do.
inline int32_t RoutedRows(const BatchView& batch, size_t sequence, RowRoute route) {
  if (batch.row_routes.empty()) return 0;
  const auto begin = batch.row_routes.begin() + batch.row_starts[sequence];
  const auto end = batch.row_routes.begin() + batch.row_starts[sequence + 1];
  return static_cast<int32_t>(std::partition_point(begin, end, [&](RowRoute r) { return (r & route) != 0; }) - begin);
}

}  // namespace sluice
