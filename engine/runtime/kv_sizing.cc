#include "engine/runtime/kv_sizing.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "engine/base/status_macros.h"
#include "engine/model/decoder.h"
#include "engine/model/kv_groups.h"
#include "engine/model/summary.h"
#include "engine/scheduler/kv_blocks.h"

namespace sluice {
namespace {

constexpr int64_t kAutoLimit = int64_t{8} << 30;

std::string Bytes(int64_t bytes) { return absl::StrCat(bytes, " bytes (", FormatBytes(bytes), ")"); }

absl::StatusOr<int32_t> WantedLength(const ModelSpec& spec, const KvSizingOptions& options) {
  if (!options.max_model_len.has_value()) return spec.max_position;
  const int32_t longest = LongestContext(spec);
  if (*options.max_model_len < 1 || *options.max_model_len > longest) {
    const std::string limit =
        longest == spec.max_position
            ? absl::StrCat("the model's context of ", longest)
            : absl::StrCat(longest, ", to which RoPE scaling extends the model's context of ", spec.max_position);
    return absl::InvalidArgumentError(
        absl::StrCat("--max-model-len is ", *options.max_model_len, ", expected 1 to ", limit));
  }
  return *options.max_model_len;
}

// What a user can do about a cache that is too small.
std::vector<absl::string_view> Remedies(const KvSizingOptions& options, const KvMemory& memory) {
  std::vector<absl::string_view> remedies;
  if (options.kv_memory_bytes.has_value()) {
    remedies.push_back("raise --kv-memory");
  } else if (!memory.dedicated) {
    remedies.push_back("set --kv-memory");
  }
  if (options.max_model_len.has_value()) remedies.push_back("lower --max-model-len");
  if (memory.dedicated) remedies.push_back("lower --max-num-batched-tokens or --max-num-seqs, which set the workspace");
  return remedies;
}

}  // namespace

int64_t KvBlockBytes(const ModelSpec& spec, int32_t block_size, KvDType dtype) {
  return MakeKvCacheShape(spec, /*num_blocks=*/1, block_size, dtype).bytes();
}

absl::StatusOr<KvSizing> SizeKvCache(const ModelSpec& spec, const KvSizingOptions& options, const KvMemory& memory) {
  SLUICE_ASSIGN_OR_RETURN(const int32_t length, WantedLength(spec, options));
  if (options.kv_memory_bytes.has_value() && *options.kv_memory_bytes <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--kv-memory is ", *options.kv_memory_bytes, ", expected a positive number of bytes or auto"));
  }
  const int64_t block_bytes = KvBlockBytes(spec, options.block_size, options.dtype);
  EngineOptions engine;  // what the scheduler will count with
  engine.kv_groups = MakeKvGroups(spec).masks;
  engine.block_size = options.block_size;
  engine.max_num_batched_tokens = options.max_num_batched_tokens;
  engine.max_model_len = length;
  const int64_t blocks_per_sequence = PeakBlocks(length, engine);
  int64_t budget;
  if (options.kv_memory_bytes.has_value()) {
    budget = *options.kv_memory_bytes;
    if (budget > memory.available_bytes) {
      return absl::ResourceExhaustedError(absl::StrCat("--kv-memory asks for ", Bytes(budget), ", but only ",
                                                       Bytes(memory.available_bytes),
                                                       " are available; lower --kv-memory"));
    }
  } else {
    // Compared in blocks: the product of blocks and bytes could leave 64 bits.
    const int64_t most = memory.dedicated ? memory.available_bytes : std::min(memory.available_bytes / 2, kAutoLimit);
    const int64_t wanted_blocks = blocks_per_sequence * options.max_num_seqs;
    budget = wanted_blocks > most / block_bytes ? most : wanted_blocks * block_bytes;
  }
  const int64_t num_blocks = std::min<int64_t>(budget / block_bytes, INT32_MAX / options.block_size);
  KvSizing sizing{int32_t(num_blocks), length, num_blocks * block_bytes};
  if (num_blocks >= blocks_per_sequence) return sizing;
  engine.num_blocks = sizing.num_blocks;
  sizing.max_model_len = LongestSequence(engine);
  if (options.max_model_len.has_value() || sizing.max_model_len == 0) {
    const int64_t needed =
        options.max_model_len.has_value() ? blocks_per_sequence : PeakBlocks(options.block_size, engine);
    return absl::ResourceExhaustedError(
        absl::StrCat("one sequence of ", options.max_model_len.has_value() ? length : options.block_size,
                     " tokens needs ", Bytes(needed * block_bytes), " of KV cache, but ", Bytes(budget),
                     " are available for it; ", absl::StrJoin(Remedies(options, memory), " or ")));
  }
  return sizing;
}

}  // namespace sluice
