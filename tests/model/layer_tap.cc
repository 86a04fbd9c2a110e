#include "tests/model/layer_tap.h"

#include "engine/base/check.h"

namespace sluice::testing {

void LayerTap::Keep(const Activations& x) {
  if (!listening) return;
  std::vector<std::vector<float>>& rows = states_.emplace_back();
  for (int64_t row = 0; row < num_rows_; ++row) {
    rows.emplace_back(size_t(x.cols()));
    SLUICE_CHECK(ops_->CopyActivations(x, row, rows.back()).ok());
  }
}

}  // namespace sluice::testing
