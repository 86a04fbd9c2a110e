#include "engine/scheduler/sequence.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"

namespace sluice {

Sequence::Sequence(SequenceId id, Request r, const EngineOptions& options, BlockPool* pool, int64_t arrival_ns)
    : id(id),
      request(std::move(r)),
      tokens(std::move(request.prompt_tokens)),
      num_prompt_tokens(int32_t(tokens.size())),
      numerics(options.numerics, num_prompt_tokens, request.sampling.max_tokens, request.adapter),
      output_mask(request, options) {
  block_tables.reserve(options.kv_groups.size());
  for (const AttentionMask& mask : options.kv_groups) block_tables.emplace_back(pool, mask.kind != MaskKind::kFull);
  request.prompt_tokens.clear();
  timings.arrival_ns = arrival_ns;
  if (request.sampling.min_tokens > 0) {
    std::vector<int32_t>& masked = masked_below_min_tokens;
    masked = request.sampling.stop_token_ids;
    masked.insert(masked.end(), options.eos_token_ids.begin(), options.eos_token_ids.end());
    absl::c_sort(masked);
    masked.erase(std::unique(masked.begin(), masked.end()), masked.end());
  }
}

FinishReason Sequence::CheckStop(absl::Span<const int32_t> eos_token_ids) const {
  const SamplingParams& sampling = request.sampling;
  const int32_t token = tokens.back();
  const auto num_known = int32_t(output().size());
  if (num_known < sampling.min_tokens) return FinishReason::kNone;
  if (!sampling.ignore_eos && absl::c_linear_search(eos_token_ids, token)) return FinishReason::kStop;
  if (absl::c_linear_search(sampling.stop_token_ids, token)) return FinishReason::kStopSequence;
  if (num_known >= sampling.max_tokens) return FinishReason::kLength;
  return FinishReason::kNone;
}

}  // namespace sluice
