// What a full block of KV holds, and therefore who may share it (docs/kv-cache.md).
//
// The keys and values of a token follow from the weights, the tokens up to it and their numerics (base/numerics.h): nothing
// else of a request reaches a device, and no row depends on its batch or chunk. So a block is known by the block before it,
// its tokens and how their rows were computed. Requests whose keys of a block are equal may share it bit for bit: what one
// computed is what the other would have.
#pragma once

#include <cstdint>

#include "absl/numeric/int128.h"
#include "absl/types/span.h"
#include "engine/base/numerics.h"

namespace sluice {

// Names a key among those that an index knows; 0 names what is before the first block.
using KvKeyId = absl::uint128;

// Requests of different salts never share, whatever they say; 0: of no salt.
using KvSalt = absl::uint128;

struct KvKey {
  KvKeyId parent = 0;                // of the block before it
  absl::Span<const int32_t> tokens;  // [block_size]; they outlive the key
  RowRoute routed = 0;               // of its first num_routed rows; the others have no route
  int32_t num_routed = 0;            // 0 if `routed` is
  int32_t rope_class = 0;
  int32_t adapter = 0;
  KvSalt salt = 0;

  bool operator==(const KvKey&) const = default;
};

// Of the block that holds tokens[index * block_size ...] of a request. REQUIRES: the block is full.
KvKey KeyOfBlock(KvKeyId parent, absl::Span<const int32_t> tokens, int32_t index, int32_t block_size,
                 const RequestNumerics& numerics, KvSalt salt);

}  // namespace sluice
