#include "engine/ops/cpu/rope.h"

#include <algorithm>
#include <cmath>

namespace sluice {

void CpuRope::Prepare(CpuContext& context, RopeLayout layout) const {
  Step& step = steps_[static_cast<size_t>(layout)];
  if (step.step == context.step) return;
  step.step = context.step;
  const int width = 2 * num_rotary();
  const int32_t capacity = std::max(context.num_tokens(), context.max_tokens);
  float* rows = step.rows.Reserve<float>(static_cast<size_t>(capacity) * static_cast<size_t>(width));
  ForRows(context, context.num_tokens(), [&](int row, int) {
    const int32_t position = context.batch.positions[static_cast<size_t>(row)];
    SLUICE_CHECK(position < max_position_);
    MakeRow(layout, position, rows + row * width);
  });
}

void CpuRope::MakeRow(RopeLayout layout, int64_t position, float* out) const {
  const int half = num_rotary() / 2;
  for (int i = 0; i < half; ++i) {
    const float angle =
        static_cast<float>(position) * inv_freq_[static_cast<size_t>(i)];  // in f32, as checkpoints expect
    const float cos = static_cast<float>(std::cos(double{angle}) * attention_factor_);
    const float sin = static_cast<float>(std::sin(double{angle}) * attention_factor_);
    if (layout == RopeLayout::kHalfSplit) {
      out[i] = cos;
      out[half + i] = sin;
    } else {
      float* swapped = out + num_rotary();
      out[2 * i] = out[2 * i + 1] = cos;
      swapped[2 * i] = -sin;
      swapped[2 * i + 1] = sin;
    }
  }
}

}  // namespace sluice
