// What crosses the border of the engine: a request going in, its tokens coming out. Plain data.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/base/draw_params.h"
#include "engine/base/sample_row.h"
#include "engine/base/token_logprobs.h"

namespace sluice {

class TokenConstraint;

// What a request says of sampling and of its end. Order of application: raw log-probabilities are taken -> masks
// (allowed_token_ids, the constraint, min_tokens) -> logit_bias -> repetition -> frequency -> presence -> argmax at
// temperature 0, else temperature -> min_p -> top_k -> top_p -> Gumbel-max (engine/ops/sampling.h). Every field is explicit:
// the caller has resolved "not set" to the model's or the documented default.
struct SamplingParams : DrawParams {
  std::vector<LogitBias> logit_bias;
  std::vector<int32_t> allowed_token_ids;  // nothing else is drawn, no end token either; empty: no restriction

  int32_t max_tokens = 1;   // >= 1
  int32_t min_tokens = 0;   // until reached, end and stop tokens cannot be sampled
  bool ignore_eos = false;  // the model's end tokens do not stop; stop_token_ids still do
  std::vector<int32_t> stop_token_ids;

  std::optional<int32_t> logprobs;         // top-N per output token; 0: the chosen one only; vocabulary size: all
  std::optional<int32_t> prompt_logprobs;  // same for prompt tokens; the first has none
};

// One sequence to generate. A caller that wants n choices submits n of them in one call.
struct Request {
  std::vector<int32_t> prompt_tokens;  // at least one
  SamplingParams sampling;
  // What the output must be like, in its first state, which several requests may share: each sequence follows a clone. Null:
  // anything.
  std::shared_ptr<const TokenConstraint> constraint;
  int32_t adapter = 0;                 // of the weights: 0, none; there are no others yet
  std::string cache_salt;              // a prefix computed for one is never taken for another with another salt
  std::optional<int64_t> deadline_ns;  // on the engine's Clock
  std::shared_ptr<void> context;  // the caller's; comes back with every output, destroyed off the engine's hot path
};

using SequenceId = uint64_t;  // unique for the life of an engine, never 0

enum class FinishReason : uint8_t {
  kNone,          // still running
  kStop,          // the model's end token, or the output is complete and its TokenConstraint lets nothing follow
  kStopSequence,  // a stop token id, or (set by the caller through Cancel) a stop string
  kLength,        // max_tokens are used up, nothing else
  kCancelled,
  kDeadline,
  kError,
};

// Moments on the engine's Clock in ns; 0: has not happened.
struct RequestTimings {
  int64_t arrival_ns = 0;
  int64_t first_scheduled_ns = 0;
  int64_t first_token_ns = 0;
  int64_t finish_ns = 0;
};

// What one step brought for one sequence. The last output of a sequence has finish_reason != kNone; exactly one such
// output comes for every sequence that Submit accepted.
struct SequenceOutput {
  SequenceId id = 0;
  std::shared_ptr<void> context;
  std::vector<int32_t> tokens;                 // new ones; an end or stop token is included
  std::vector<TokenLogprobs> logprobs;         // parallel to tokens, if asked for
  std::vector<TokenLogprobs> prompt_logprobs;  // of prompt tokens 1.. in order, as they become known
  FinishReason finish_reason = FinishReason::kNone;
  int32_t stop_token = -1;  // the end or stop token that finished it, if one did
  absl::Status error;       // why, if kError; OK if that was because of another sequence
  int32_t num_prompt_tokens = 0;
  int32_t num_cached_tokens = 0;  // prompt tokens whose KV came from the prefix cache
  int32_t num_preemptions = 0;
  RequestTimings timings;
};

struct StepStats {
  int32_t num_prefill_tokens = 0;  // prompt tokens computed (recomputed ones after a preemption included)
  int32_t num_decode_tokens = 0;   // rows that continued a generation
  int32_t num_sequences = 0;
};

// Where the tokens go.
class TokenSink {
 public:
  virtual ~TokenSink() = default;
  // Called on the engine thread after each step (and after cancels outside a step, then with stats.num_sequences == 0).
  // Must return at once: hand the outputs to another thread.
  virtual void OnStep(const StepStats& stats, std::vector<SequenceOutput> outputs) = 0;
};

}  // namespace sluice
