// How the prompt rows of a step are divided among the prompts that lack them.
//
// The oldest prompt is owed a quarter of the rows. All others go to the prompt that lacks fewest, then to the next, the
// older one first of equals; the oldest takes part in that for what its quarter leaves open. Hence
//   - a short newcomer is computed in the step that admits it, unless prompts that lack still less take three quarters
//     of the rows;
//   - whatever arrives, the oldest prompt takes at most four times the steps that it takes alone, and then the next is
//     the oldest: nobody starves. With others that want a part L < 1 of all rows it gets the rest, 1 - L;
//   - no row is left over while a prompt lacks one, and at most two prompts of a step are cut: the oldest and the last
//     that gets rows.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "engine/engine_options.h"
#include "engine/scheduler/sequence.h"

namespace sluice {

// The most prompt rows of a step that also carries decodes (EngineOptions::max_prefill_tokens_beside_decodes).
int32_t PromptRowsBesideDecodes(const EngineOptions& options);

// Sets num_scheduled_tokens of `prompts`, which are in order of arrival: together `budget`, or all they lack.
// REQUIRES: budget >= 0; each lacks a row and has none scheduled
void DividePromptRows(absl::Span<Sequence* const> prompts, int32_t budget);

}  // namespace sluice
