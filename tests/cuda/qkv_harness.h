// One step of an attention layer between its projections and the attention itself, on the device and by definition in
// double precision.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/base/rope_table.h"
#include "engine/ops/cuda/kernels/qkv.h"
#include "tests/cuda/values.h"

namespace sluice::cuda_testing {

// A row of a step; sequence -1: padding.
struct StepRow {
  int32_t sequence, position, slot;
};

// The step's arrays on the device; what the kernels of this family do not read is left out.
class DeviceStep {
 public:
  DeviceStep(const std::vector<StepRow>& rows, const std::vector<int32_t>& rope_classes)
      : rope_classes_(rope_classes), positions_(rows.size()), sequences_(rows.size()), slots_(rows.size()) {
    std::vector<int32_t> positions, sequences, slots;
    for (const StepRow& row : rows) {
      positions.push_back(row.position), sequences.push_back(row.sequence), slots.push_back(row.slot);
    }
    positions_.Write(positions), sequences_.Write(sequences), slots_.Write(slots);
    step = {.num_tokens = int32_t(rows.size()),
            .num_seqs = int32_t(rope_classes.size()),
            .positions = positions_.data(),
            .row_sequences = sequences_.data(),
            .rope_classes = rope_classes_.data()};
    group.slot_mapping = slots_.data();
  }
  cuda::StepArrays step;
  cuda::KvGroupArrays group;

 private:
  DeviceArray<int32_t> rope_classes_, positions_, sequences_, slots_;
};

// A RopeTable on the device.
class DeviceRope {
 public:
  DeviceRope(const RopeTable& table, RopeLayout layout) : inv_freq_(table.inv_freq), long_inv_freq_(Long(table)) {
    view = {.inv_freq = inv_freq_.data(),
            .attention_factor = table.attention_factor,
            .layout = layout,
            .num_rotary = int32_t(2 * table.inv_freq.size())};
    if (const auto* rule = std::get_if<LongRopeRule>(&table.length_rule)) {
      view.rule = cuda::LengthRule::kLongRope;
      view.long_inv_freq = long_inv_freq_.data();
      view.original_max_position = rule->original_max_position;
    } else if (const auto* ntk = std::get_if<DynamicNtkRule>(&table.length_rule)) {
      view.rule = cuda::LengthRule::kDynamicNtk;
      view.original_max_position = ntk->max_position;
      view.base = ntk->base, view.factor = ntk->factor;
    }
  }
  cuda::RopeView view;

 private:
  static std::vector<float> Long(const RopeTable& table) {
    const auto* rule = std::get_if<LongRopeRule>(&table.length_rule);
    return rule != nullptr ? rule->long_inv_freq : std::vector<float>();
  }
  DeviceArray<float> inv_freq_, long_inv_freq_;
};

inline RopeTable MakeRopeTable(int num_rotary, float base = 1e4f) {
  RopeTable table;
  for (int i = 0; i < num_rotary; i += 2) table.inv_freq.push_back(1 / std::pow(base, float(i) / float(num_rotary)));
  return table;
}

// Turns the pairs of a head, as RopeTable says: the angle in f32, all else in double.
inline void Rotate(const RopeTable& table, RopeLayout layout, int32_t position, int32_t length, double* head) {
  std::vector<float> inv_freq;
  SelectInvFreq(table, length, &inv_freq);
  const size_t half = inv_freq.size();
  for (size_t i = 0; i < half; ++i) {
    const bool split = layout == RopeLayout::kHalfSplit;
    double& a = head[split ? i : 2 * i];
    double& b = head[split ? i + half : 2 * i + 1];
    const double angle = float(position) * inv_freq[i], factor = table.attention_factor, a0 = a, b0 = b;
    a = (a0 * std::cos(angle) - b0 * std::sin(angle)) * factor;
    b = (b0 * std::cos(angle) + a0 * std::sin(angle)) * factor;
  }
}

inline void Normalise(const NormParams& params, const float* weight, double* x, int n) {
  double mean = 0, square = 0;
  if (params.kind == NormKind::kLayer) {
    for (int i = 0; i < n; ++i) mean += x[i] / n;
  }
  for (int i = 0; i < n; ++i) square += (x[i] - mean) * (x[i] - mean) / n;
  for (int i = 0; i < n; ++i) {
    const double w = weight != nullptr ? double(weight[i]) + double(params.weight_offset) : 1;
    x[i] = (x[i] - mean) / std::sqrt(square + double(params.eps)) * w;
  }
}

// A layer of the cache of exactly `num_blocks` blocks, all bytes 0xff.
class CacheLayer {
 public:
  CacheLayer(cuda::KvElement element, int block_size, int num_kv_heads, int head_dim, int value_head_dim,
             int num_blocks)
      : kv{nullptr, element, block_size, num_kv_heads, head_dim, value_head_dim},
        bytes_(size_t(num_blocks * kv.block_elements() * cuda::KvElementBytes(element))) {
    kv.data = bytes_.data();
  }

  cuda::PagedKv kv;

  std::vector<uint8_t> Bytes() const { return bytes_.Read(); }
  void Write(const std::vector<uint8_t>& bytes) { bytes_.Write(bytes); }

  // All values, in the order in which they lie there.
  std::vector<float> Values() const {
    const std::vector<uint8_t> bytes = bytes_.Read();
    std::vector<float> values;
    for (size_t i = 0; i < bytes.size(); i += size_t(cuda::KvElementBytes(kv.element))) {
      uint16_t half = 0;
      float value = 0;
      std::copy_n(&bytes[i], std::min<size_t>(2, bytes.size() - i), reinterpret_cast<uint8_t*>(&half));
      if (kv.element == cuda::KvElement::kF32) std::copy_n(&bytes[i], 4, reinterpret_cast<uint8_t*>(&value));
      if (kv.element == cuda::KvElement::kF16) value = F16ToFloat(half);
      if (kv.element == cuda::KvElement::kBF16) value = Bf16ToFloat(half);
      if (kv.element == cuda::KvElement::kF8E4M3) value = F8E4M3ToFloat(bytes[i]);
      values.push_back(value);
    }
    return values;
  }

  // Where the key (value) of a head begins among them, as PagedKv describes a block.
  size_t KeyAt(int slot, int head) const {
    return size_t(slot / kv.block_size * kv.block_elements() +
                  (head * kv.block_size + slot % kv.block_size) * kv.head_dim);
  }
  size_t ValueAt(int slot, int head) const {
    return size_t(slot / kv.block_size * kv.block_elements() + kv.num_kv_heads * kv.block_size * kv.head_dim +
                  (head * kv.block_size + slot % kv.block_size) * kv.value_head_dim);
  }

 private:
  DeviceArray<uint8_t> bytes_;
};

inline float RoundTo(cuda::KvElement element, float x) {
  switch (element) {
    case cuda::KvElement::kF32:
      return x;
    case cuda::KvElement::kF16:
      return F16ToFloat(FloatToF16(x));
    case cuda::KvElement::kBF16:
      return Bf16ToFloat(FloatToBf16(x));
    case cuda::KvElement::kF8E4M3:
      return F8E4M3ToFloat(FloatToF8E4M3(x));
  }
  return x;
}

}  // namespace sluice::cuda_testing
