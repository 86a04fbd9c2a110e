#include "engine/base/rope_table.h"

#include <cmath>

namespace sluice {

void SelectInvFreq(const RopeTable& table, int32_t length, std::vector<float>* inv_freq) {
  *inv_freq = table.inv_freq;
  if (const auto* rule = std::get_if<LongRopeRule>(&table.length_rule)) {
    if (length > rule->original_max_position) *inv_freq = rule->long_inv_freq;
    return;
  }
  const auto* rule = std::get_if<DynamicNtkRule>(&table.length_rule);
  if (rule == nullptr || length <= rule->max_position) return;
  const double num_rotary = 2.0 * double(inv_freq->size());
  const double stretch = double{rule->factor} * length / rule->max_position - (double{rule->factor} - 1);
  const double base = rule->base * std::pow(stretch, num_rotary / (num_rotary - 2));
  for (size_t i = 0; i < inv_freq->size(); ++i) {
    (*inv_freq)[i] = float(std::pow(base, -2.0 * double(i) / num_rotary));
  }
}

}  // namespace sluice
