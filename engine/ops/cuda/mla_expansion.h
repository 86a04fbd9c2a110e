// Which rows of a step take the expanded form of latent attention (MlaAttentionArgs in ops.h), and the passes in which
// their keys and values are made: all sequences at once would need more memory than there is.
//
// The form follows from the request alone, and keys and values of a token from the token, so neither passes nor what
// else is in them show in any result.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/ops/ops.h"

namespace sluice {

class MlaExpansion {
 public:
  // Sequences taken together, some heads at a time.
  struct Pass {
    int32_t first_seq = 0, end_seq = 0;
    int32_t num_blocks = 0;      // of kExpandedBlock tokens, of all these sequences
    int32_t longest_blocks = 0;  // of one of them
  };
  struct Run {
    int32_t first = 0, count = 0;
    bool operator==(const Run&) const = default;
  };
  // Capacities that hold any pass of a step within the limits.
  struct Room {
    int64_t tokens = 0;
    int64_t token_heads = 0;
    int32_t sequence_blocks = 0;
  };

  static constexpr int32_t kPassTokens = 1 << 14;
  static constexpr int32_t kPassHeads = 16;  // of a pass of so many tokens, more of a smaller one

  // Passes are of up to `pass_tokens`, or of one longer sequence.
  explicit MlaExpansion(int32_t pass_tokens = kPassTokens);

  // `expands`: StepLimits::expands_latents; without, no row takes the expanded form.
  void SetLimits(bool expands, int64_t max_context_tokens, int32_t max_seqs, int32_t max_sequence_tokens);

  void BeginStep(const BatchView& batch);
  // A step of padding; with `expanded` one whose operations ask for all the memory that they will ever need.
  void BeginPadding(int32_t num_rows, bool expanded);

  // Whether the step has such rows, or is padding that stands for a step with some.
  bool any() const { return any_; }
  // The rest is for steps that have. Of each sequence: the row after its last expanded one, which come first; its first
  // block in its pass, -1 without such rows.
  std::span<const int32_t> expanded_ends() const { return expanded_ends_; }
  std::span<const int32_t> first_blocks() const { return first_blocks_; }
  std::span<const Pass> passes() const { return passes_; }
  std::span<const Run> absorbed_runs() const { return absorbed_runs_; }  // rows of the other form, ascending

  Room RoomFor(int32_t num_heads) const;
  // Of `num_heads`, as many as there is room for.
  int32_t HeadsAtOnce(const Pass& pass, int32_t num_heads) const;

 private:
  void AddAbsorbed(int32_t first, int32_t count);

  int32_t pass_blocks_;
  bool expands_ = false;
  int32_t most_blocks_ = 0;      // of all sequences of a step
  int32_t sequence_blocks_ = 0;  // of one
  bool any_ = false;
  std::vector<int32_t> expanded_ends_, first_blocks_;
  std::vector<Pass> passes_;
  std::vector<Run> absorbed_runs_;
};

}  // namespace sluice
