#include "engine/scheduler/kv_key.h"

#include <algorithm>

#include "engine/base/check.h"

namespace sluice {

KvKey KeyOfBlock(KvKeyId parent, absl::Span<const int32_t> tokens, int32_t index, int32_t block_size,
                 const RequestNumerics& numerics, KvSalt salt) {
  const int32_t first = index * block_size;
  SLUICE_CHECK(int64_t{first} + block_size <= int64_t(tokens.size()));
  KvKey key{.parent = parent,
            .tokens = tokens.subspan(size_t(first), size_t(block_size)),
            .rope_class = numerics.rope_class,
            .adapter = numerics.adapter,
            .salt = salt};
  key.num_routed = std::clamp(numerics.num_routed - first, 0, block_size);
  if (key.num_routed > 0) key.routed = numerics.routed;
  return key;
}

}  // namespace sluice
