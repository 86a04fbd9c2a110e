// The oracle: every operation of ops.h in plain loops, one thread. Values rest in f32, sums run in f64 in index order,
// weights are the dequantised values of engine/base/dequantize.h. K and V are rounded to the cache's type, so that what
// attention reads is what any other implementation reads.
#pragma once

#include <memory>

#include "engine/ops/ops.h"

namespace sluice {

std::unique_ptr<Ops> NewReferenceOps();

}  // namespace sluice
