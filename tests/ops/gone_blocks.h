// For tests that attention reads no block which the scheduler has given back.
#pragma once

#include <map>
#include <vector>

#include "tests/ops/paged_batch.h"
#include "tests/sanitized.h"

namespace sluice {

// Two sequences in chunks and single tokens, around the borders of blocks, tiles and splits.
inline Schedule TwoInTurns() {
  Schedule schedule = {{{0, 70}}, {{1, 41}, {0, 37}}, {{0, 1}, {1, 64}}, {{1, 1}, {0, 150}}, {{1, 170}}};
  for (int i = 0; i < 40; ++i) schedule.push_back({{0, 1}, {1, 1}});
  return schedule;
}

// Runs a schedule on a harness as if its layer's group had `mask`: before each step blocks that no further row sees
// leave the tables, and the other sequence writes over them. Without a mask everything stays.
template <class Trace, class Harness>
Trace RunForgetting(Harness* harness, const Schedule& schedule, const AttentionMask& mask) {
  Trace trace;
  std::map<int, int> lengths;
  for (const std::vector<Chunk>& step : schedule) {
    for (const auto& [sequence, length] : lengths) harness->Forget(sequence, FirstVisibleKey(mask, length));
    harness->RunStep(step, &trace);
    for (const Chunk& chunk : step) lengths[chunk.sequence] += chunk.count;
  }
  return trace;
}

inline std::vector<AttentionMask> ForgetfulMasks() {
  if (kSanitized) return {{MaskKind::kWindow, 65}, {MaskKind::kChunk, 24}};
  return {{MaskKind::kWindow, 1},  {MaskKind::kWindow, 20}, {MaskKind::kWindow, 64},
          {MaskKind::kWindow, 65}, {MaskKind::kWindow, 90}, {MaskKind::kChunk, 1},
          {MaskKind::kChunk, 24},  {MaskKind::kChunk, 64},  {MaskKind::kChunk, 100}};
}

}  // namespace sluice
