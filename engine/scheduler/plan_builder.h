// From "this sequence computes so many tokens" to the flat arrays of a StepPlan.
#pragma once

#include "absl/types/span.h"
#include "engine/scheduler/sequence.h"
#include "engine/scheduler/step_plan.h"

namespace sluice {

// Fills `plan` (whose vectors keep their memory from step to step) for `sequences` in this order, each with its
// num_scheduled_tokens. A sequence whose rows reach its last token gets a SampleEntry, and one for each of its drafts, all
// of which have a row then; a TokenConstraint fills their masks, and is left in the state that it was in. Prompt rows whose
// log-probability is wanted and has not been delivered yet get a PromptLogprobEntry. Both lists follow the order of the
// sequences. REQUIRES: there are sequences; block tables cover the rows and what they see.
void BuildStepPlan(absl::Span<Sequence* const> sequences, int32_t block_size, StepPlan* plan);

}  // namespace sluice
