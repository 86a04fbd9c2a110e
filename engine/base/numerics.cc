#include "engine/base/numerics.h"

namespace sluice {

int32_t RopeClasses::ClassOf(int32_t length) const {
  if (length > each_length_behind) return length;
  int32_t least = 0;
  for (int32_t border : change_behind) {
    if (length > border) least = border + 1;
  }
  return least;
}

RequestNumerics::RequestNumerics(const NumericsOptions& options, int32_t prompt_len, int32_t max_tokens, int32_t adapter)
    : rope_class(options.rope.ClassOf(prompt_len + max_tokens)), adapter(adapter) {
  if (prompt_len >= options.mla_expand_from) routed |= kRouteExpandedLatents;
  if (prompt_len >= options.gemm_library_from) routed |= kRouteLibraryProducts;
  if (routed != 0) num_routed = prompt_len;
}

}  // namespace sluice
