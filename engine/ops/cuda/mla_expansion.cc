#include "engine/ops/cuda/mla_expansion.h"

#include <algorithm>

#include "engine/base/check.h"
#include "engine/ops/cuda/kernels/mla_expand.h"
#include "engine/ops/routed_rows.h"

namespace sluice {
namespace {

int32_t Blocks(int64_t tokens) {
  return static_cast<int32_t>((tokens + cuda::kExpandedBlock - 1) / cuda::kExpandedBlock);
}

}  // namespace

MlaExpansion::MlaExpansion(int32_t pass_tokens) : pass_blocks_(Blocks(pass_tokens)) { SLUICE_CHECK(pass_tokens > 0); }

void MlaExpansion::SetLimits(bool expands, int64_t max_context_tokens, int32_t max_seqs, int32_t max_sequence_tokens) {
  expands_ = expands;
  most_blocks_ = Blocks(max_context_tokens) + max_seqs;  // each has a last one that may not be full
  sequence_blocks_ = Blocks(max_sequence_tokens);
}

void MlaExpansion::BeginStep(const BatchView& batch) {
  any_ = false;
  if (!expands_) return;
  const int32_t num_seqs = static_cast<int32_t>(batch.context_lens.size());
  expanded_ends_.clear();
  first_blocks_.clear();
  passes_.clear();
  absorbed_runs_.clear();
  int32_t step_blocks = 0;
  for (int32_t s = 0; s < num_seqs; ++s) {
    const int32_t first = batch.row_starts[s], end = batch.row_starts[s + 1];
    const int32_t count = RoutedRows(batch, static_cast<size_t>(s), kRouteExpandedLatents);
    expanded_ends_.push_back(first + count);
    AddAbsorbed(first + count, end - first - count);
    if (count == 0) {
      first_blocks_.push_back(-1);
      continue;
    }
    const int32_t blocks = Blocks(batch.context_lens[s]);
    if (passes_.empty() || passes_.back().num_blocks + blocks > pass_blocks_) passes_.push_back({.first_seq = s});
    Pass& pass = passes_.back();
    first_blocks_.push_back(pass.num_blocks);
    pass.end_seq = s + 1;
    pass.num_blocks += blocks;
    pass.longest_blocks = std::max(pass.longest_blocks, blocks);
    step_blocks += blocks;
    sequence_blocks_ = std::max(sequence_blocks_, blocks);
  }
  most_blocks_ = std::max(most_blocks_, step_blocks);
  any_ = !passes_.empty();
}

void MlaExpansion::BeginPadding(int32_t num_rows, bool expanded) {
  any_ = expanded && expands_;
  expanded_ends_.clear();
  first_blocks_.clear();
  passes_.assign(1, {});
  absorbed_runs_.assign(1, {0, num_rows});
}

MlaExpansion::Room MlaExpansion::RoomFor(int32_t num_heads) const {
  // A pass is full, or a longer sequence, or all there is.
  const int64_t blocks = std::max(std::min(pass_blocks_, most_blocks_), sequence_blocks_);
  const int64_t token_heads = std::min(int64_t{pass_blocks_} * kPassHeads, int64_t{most_blocks_} * num_heads);
  return {blocks * cuda::kExpandedBlock, std::max(token_heads, blocks) * cuda::kExpandedBlock, sequence_blocks_};
}

int32_t MlaExpansion::HeadsAtOnce(const Pass& pass, int32_t num_heads) const {
  const int64_t heads = int64_t{pass_blocks_} * kPassHeads / std::max(pass.num_blocks, 1);
  return static_cast<int32_t>(std::clamp<int64_t>(heads, 1, num_heads));
}

void MlaExpansion::AddAbsorbed(int32_t first, int32_t count) {
  if (count == 0) return;
  if (!absorbed_runs_.empty() && absorbed_runs_.back().first + absorbed_runs_.back().count == first) {
    absorbed_runs_.back().count += count;
  } else {
    absorbed_runs_.push_back({first, count});
  }
}

}  // namespace sluice
