// Frequencies of the rotary embedding, as data: one fixed list, or a rule that picks the list by the length of the
// sequence. How models extend them: engine/model/rope.h.
#pragma once

#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "engine/base/numerics.h"

namespace sluice {

// Sequences longer than `original_max_position` use these frequencies instead (longrope).
struct LongRopeRule {
  int32_t original_max_position = 0;
  std::vector<float> long_inv_freq;  // [num_rotary / 2]
};

// For a sequence of L > max_position tokens the base grows to
// base * (factor * L / max_position - (factor - 1)) ^ (num_rotary / (num_rotary - 2)).
struct DynamicNtkRule {
  float base = 1e4f;
  float factor = 1;
  int32_t max_position = 0;
};

// Pair i of a row at position p turns by p * inv_freq[i]; cos and sin are multiplied by `attention_factor`. The length
// a rule looks at is BatchView::rope_classes: fixed when the request arrives, so that all its keys are rotated by one table.
struct RopeTable {
  std::vector<float> inv_freq;  // [num_rotary / 2]
  float attention_factor = 1;
  std::variant<std::monostate, LongRopeRule, DynamicNtkRule> length_rule;

  bool depends_on_length() const { return length_rule.index() != 0; }
};

// The frequencies for a sequence of `length` tokens; at most [num_rotary / 2] values, written to `inv_freq`.
void SelectInvFreq(const RopeTable& table, int32_t length, std::vector<float>* inv_freq);

// Where the frequencies of any of the tables change.
RopeClasses RopeClassesOf(std::span<const RopeTable> tables);

}  // namespace sluice
