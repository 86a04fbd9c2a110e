// A model without weights for tests of the scheduler and the engine. Its KV cache holds token ids, their positions and
// the KV group they were written for, and a digest of all that keys and values of a real model depend on: the tokens before,
// as far as any layer sees them, and how each of their rows was computed. What it draws is a hash of everything a real model
// and sampler may look at: the keys that each group's layers see as read back through the block table, the seed, the
// position, the penalised outputs, the masks. A wrong block, one given back too early, one taken from a request that computed it
// otherwise, a lost or repeated row, a stale span: each changes the tokens.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/engine_options.h"
#include "engine/request.h"
#include "engine/scheduler/step_plan.h"
#include "engine/scheduler/step_runner.h"

namespace sluice::testing {

// A request with this seed gets logits without a finite value from its third output token on.
inline constexpr uint64_t kNonfiniteSeed = 0xbad;

class HashRunner : public StepRunner {
 public:
  explicit HashRunner(const EngineOptions& options, bool launches_async = false);

  bool launches_async() const override { return runs_ahead_; }
  // Records a test failure wherever `plan` breaks a rule of step_plan.h.
  absl::Status Launch(const StepPlan& plan) override;
  absl::StatusOr<StepResult> Take() override;

  std::function<absl::Status(const StepPlan&)> before_step;  // an error is returned as the launch's
  std::function<absl::Status()> before_take;                 // an error is returned as the result
  int64_t num_unknown_tokens = 0;                            // rows so far whose token came from a step in flight
  int64_t num_rows = 0;                                      // so far

 private:
  struct CachedKey {
    int32_t group = -1, position = -1, token = -1;
    uint64_t digest = 0;
    bool operator==(const CachedKey&) const = default;
  };

  StepResult Compute(const StepPlan& plan);
  // Puts what the step in flight drew into the plan, where it asks for that.
  void ResolveTokens(StepPlan* plan);
  void CheckShape(const StepPlan& plan) const;
  void CheckBlocks(const StepPlan& plan) const;
  void WriteKv(const StepPlan& plan);
  // What comes before a sequence's first row of the step and is not computed by its slot was taken from somebody else.
  void ReadTakenPrefix(const StepPlan& plan, int32_t sequence_index);
  // Every key that a row of the plan sees must be where the tables say.
  void CheckVisibleKeys(const StepPlan& plan) const;
  // HashOf what a query at `position` of a sequence sees, read through its block tables.
  uint64_t HashVisible(const StepPlan& plan, int32_t sequence_index, int32_t position) const;
  const CachedKey& KeyAt(const KvGroupPlan& group, int32_t sequence_index, int32_t position) const;

  const EngineOptions options_;
  const bool runs_ahead_;
  std::deque<StepResult> in_flight_;
  std::vector<CachedKey> kv_;  // [num_blocks * block_size]
  // By seq_slot: tokens that have been rows or were taken, by position, with their digests; -1: out of sight when they were
  // taken.
  std::vector<std::vector<int32_t>> tokens_;
  std::vector<std::vector<uint64_t>> digests_;
};

// What a request must get, whoever it shares its steps with.
struct Expected {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;  // of `tokens`
  std::vector<float> prompt_logprobs;
  FinishReason finish_reason = FinishReason::kNone;
  int32_t stop_token = -1;
  absl::string_view error_reason;  // for kError
};
Expected ExpectedOutput(const Request& request, const EngineOptions& options);

// A request whose output stops of its own accord with its second token. After some of these the scheduler expects the
// same of all to come that may stop, and admits more than the pool can carry if they go on: so sequences are preempted.
Request ShortOutput(const EngineOptions& options);

}  // namespace sluice::testing
