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
  if (table_.depends_on_length()) PrepareSequences(context);
  ForRows(context, context.num_tokens(), [&](int row, int) {
    const BatchView& batch = context.batch;
    const int32_t position = batch.positions[static_cast<size_t>(row)];
    SLUICE_CHECK(position < max_position_);
    const std::vector<float>* inv_freq = &table_.inv_freq;
    if (table_.depends_on_length()) {
      const auto next = std::upper_bound(batch.row_starts.begin(), batch.row_starts.end(), row);
      inv_freq = &sequences_[static_cast<size_t>(next - batch.row_starts.begin() - 1)].inv_freq;
    }
    MakeRow(layout, position, *inv_freq, rows + row * width);
  });
}

void CpuRope::PrepareSequences(const CpuContext& context) const {
  const std::span<const int32_t> classes = context.batch.rope_classes;
  SLUICE_CHECK(classes.size() == context.batch.context_lens.size());
  if (sequences_.size() < classes.size()) {
    const size_t capacity = std::max(classes.size(), static_cast<size_t>(context.max_tokens));
    sequences_.resize(capacity, {-1, table_.inv_freq});
  }
  for (size_t s = 0; s < classes.size(); ++s) {
    if (sequences_[s].rope_class == classes[s]) continue;
    sequences_[s].rope_class = classes[s];
    SelectInvFreq(table_, classes[s], &sequences_[s].inv_freq);
  }
}

void CpuRope::MakeRow(RopeLayout layout, int64_t position, const std::vector<float>& inv_freq, float* out) const {
  const int half = num_rotary() / 2;
  for (int i = 0; i < half; ++i) {
    const float angle =
        static_cast<float>(position) * inv_freq[static_cast<size_t>(i)];  // in f32, as checkpoints expect
    const float cos = static_cast<float>(std::cos(double{angle}) * table_.attention_factor);
    const float sin = static_cast<float>(std::sin(double{angle}) * table_.attention_factor);
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
