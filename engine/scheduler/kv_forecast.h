// How many KV blocks the sequences that run will hold at the moments to come, so that admission lets nobody in whom the
// pool cannot carry.
//
// Time is counted in steps, each of which gives a token to every sequence whose prompt is done. At a moment to come a
// sequence holds the blocks of all tokens it then has (in a window or chunk group, of those in sight), with the
// probability that its output gets that far (OutputLengths), and none after its max_tokens. What all of them are
// expected to hold at that moment, and one and a half times the standard deviation of that, must be there. So sequences
// that end at different times share what one after the other gives back, and many of which few are long are not counted
// as if all were; a pool that holds few sequences leaves more room than one in which lengths even out.
//
// A block of a full group that several of them hold is there once, as long as any of them may hold it; until when that is,
// nobody reckons: until the last of those who share anything must have ended. Blocks that a newcomer would take from another
// who has them alone are that one's until the next look.
//
// Between two moments that are looked at (a block of steps apart at first, later an eighth of the way) those of the
// earlier are assumed to live and to be as long as at the later: too many rather than too few.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "engine/engine_options.h"
#include "engine/scheduler/output_lengths.h"
#include "engine/scheduler/prefix_cache.h"
#include "engine/scheduler/sequence.h"

namespace sluice {

// Not thread-safe: owned by the engine thread. All sequences are running or waiting ones of the same scheduler.
class KvForecast {
 public:
  explicit KvForecast(const EngineOptions& options);  // `options` outlives the forecast

  // Starts again with these. They and `lengths` stay as they are while the others are called.
  void Begin(absl::Span<const std::unique_ptr<Sequence>> running, const OutputLengths& lengths);

  // Whether the pool is enough for those who are in and for `s`, which waits and would take `hit`; its prompt would be the
  // last to be computed.
  bool Fits(const Sequence& s, const PrefixHit& hit);
  // It is in from now on.
  void Add(const Sequence& s, const PrefixHit& hit);

 private:
  struct Load {
    const Sequence* sequence = nullptr;
    int32_t num_remaining = 0;  // tokens to compute
    int32_t num_shared = 0;     // blocks that others hold as well
    double part_of_shared = 0;  // those divided among their holders, as far as others do not answer for them
  };
  Load LoadOf(const Sequence& s) const;                        // of one that runs
  Load LoadOf(const Sequence& s, const PrefixHit& hit) const;  // of one that waits
  double MostBlocks(const Load& load) const;  // if it goes on to its max_tokens
  struct Demand {
    double blocks = 0;  // expected
    double variance = 0;
    Demand& operator+=(const Demand& other) {
      blocks += other.blocks;
      variance += other.variance;
      return *this;
    }
  };

  // Calls visit(i, demand) with the demand of `load` between moments_[i] and moments_[i + 1], shared blocks left out.
  template <typename Visit>
  void ForEachMoment(const Load& load, Visit visit) const;
  // Until its prompt is done, if prompt_rows_ come before it.
  int32_t PromptSteps(const Load& load) const;
  void LookAhead();

  const EngineOptions& options_;
  std::vector<int32_t> moments_;
  std::vector<Load> loads_;
  double most_blocks_ = 0;  // if everyone goes on to its max_tokens, and all at once

  // Looked at only when that is more than the pool has.
  const OutputLengths* lengths_ = nullptr;
  OutputLengths::Survival survival_;
  size_t num_foreseen_ = 0;     // of loads_, in what follows
  std::vector<Demand> demand_;  // between moments_[i] and moments_[i + 1]
  int64_t prompt_rows_ = 0;     // still to be computed
  double shared_blocks_ = 0;    // until the moment shared_until_
  int64_t shared_until_ = 0;
};

}  // namespace sluice
