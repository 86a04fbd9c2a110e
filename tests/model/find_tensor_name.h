// The other way round than the loader asks: what a tensor is called, for tests that write files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/model/tensor_naming.h"

namespace sluice {

// What `naming` calls a tensor first of all, under its first prefix; nothing when it has no name for the role. An
// "{expert}" stays.
inline std::optional<std::string> FindTensorName(const TensorNaming& naming, TensorRole role, int32_t layer) {
  const absl::string_view prefix = naming.prefixes.empty() ? "" : naming.prefixes[0];
  for (const TensorName& name : naming.names) {
    if (name.role == role) return ExpandTensorName(name.pattern, prefix, layer);
  }
  return std::nullopt;
}

}  // namespace sluice
