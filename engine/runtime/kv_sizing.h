// How many KV blocks there are, from what the model needs per token and the memory there is.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "engine/model/spec.h"
#include "engine/ops/ops.h"

namespace sluice {

// Bytes of one block: block_size tokens in the layers of a KV group (model/kv_groups.h).
int64_t KvBlockBytes(const ModelSpec& spec, int32_t block_size, KvDType dtype);

struct KvSizingOptions {
  std::optional<int64_t> kv_memory_bytes = {};  // --kv-memory; none: auto
  int32_t block_size = 16;
  KvDType dtype = KvDType::kF16;
  std::optional<int32_t> max_model_len = {};  // --max-model-len; none: the trained context, or what fits
  int32_t max_num_seqs = 64;
  int32_t max_num_batched_tokens = 512;
};

struct KvSizing {
  int32_t num_blocks = 0;
  int32_t max_model_len = 0;
  int64_t bytes = 0;  // num_blocks blocks
};

// `memory` is that of the device (Ops::MemoryForKv). A sequence takes the blocks that it holds at its peak (PeakBlocks
// in scheduler/kv_blocks.h), not those of all its tokens.
//   --kv-memory BYTES: as many blocks as fit into it; RESOURCE_EXHAUSTED if it is more than what is available.
//   auto: max_num_seqs sequences of max_model_len, more than which nothing could fill, if there is room for them.
//   Otherwise all that is available of dedicated memory, and of other memory half, at most 8 GiB.
// A max_model_len that was asked for and does not fit is RESOURCE_EXHAUSTED with needed and available bytes and the
// flags to change; one that was not asked for is the trained context and shrinks to what fits. INVALID_ARGUMENT:
// max_model_len is over LongestContext, or a number that is not positive. Dynamic RoPE extends only if asked to: a
// request's table goes by its prompt and max_tokens, so a longer context by default would change the answers to
// requests that the trained one has room for.
absl::StatusOr<KvSizing> SizeKvCache(const ModelSpec& spec, const KvSizingOptions& options, const KvMemory& memory);

}  // namespace sluice
