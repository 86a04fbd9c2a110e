#include "engine/base/rope_table.h"

#include <algorithm>
#include <cmath>

namespace sluice {
namespace {

// Checkpoints were trained with frequencies whose steps were rounded to f32. Over a long context those roundings are
// seen, so they are made here too, each step from its exact value.
float PowF32(float base, float exponent) { return float(std::pow(double{base}, double{exponent})); }

void MakeDynamicNtk(const DynamicNtkRule& rule, int32_t length, std::vector<float>* inv_freq) {
  const float num_rotary = 2 * float(inv_freq->size());
  const float stretch = rule.factor * float(length) / float(rule.max_position) - (rule.factor - 1);
  const float base = rule.base * PowF32(stretch, num_rotary / (num_rotary - 2));
  for (size_t i = 0; i < inv_freq->size(); ++i) (*inv_freq)[i] = 1 / PowF32(base, 2 * float(i) / num_rotary);
}

}  // namespace

void SelectInvFreq(const RopeTable& table, int32_t length, std::vector<float>* inv_freq) {
  *inv_freq = table.inv_freq;
  if (const auto* rule = std::get_if<LongRopeRule>(&table.length_rule)) {
    if (length > rule->original_max_position) *inv_freq = rule->long_inv_freq;
  } else if (const auto* rule = std::get_if<DynamicNtkRule>(&table.length_rule)) {
    if (length > rule->max_position) MakeDynamicNtk(*rule, length, inv_freq);
  }
}

RopeClasses RopeClassesOf(std::span<const RopeTable> tables) {
  RopeClasses classes;
  for (const RopeTable& table : tables) {
    if (const auto* rule = std::get_if<LongRopeRule>(&table.length_rule)) {
      classes.change_behind.push_back(rule->original_max_position);
    } else if (const auto* rule = std::get_if<DynamicNtkRule>(&table.length_rule)) {
      classes.each_length_behind = std::min(classes.each_length_behind, rule->max_position);
    }
  }
  std::sort(classes.change_behind.begin(), classes.change_behind.end());
  return classes;
}

}  // namespace sluice
