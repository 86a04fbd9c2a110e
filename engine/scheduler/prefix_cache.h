// What sequences take from the prefix index, and what they put into it.
//
// Put: a full block of a sequence, of its prompt or of its output, as soon as a step that computes its last row has been
// planned and its tokens are known. Steps take effect in the order of their launches (StepRunner), and nobody takes a block
// before a later step is planned: so whoever reads it reads what was written, whether the step has been committed or not. To
// wait for the commit would make every taker wait for a step more and guard against nothing: a step that fails ends the
// engine. The token that a step in flight draws is unknown, so the block that it fills waits for the commit by itself; rows of
// drafts count only once they are tokens. If another sequence has put an equal block meanwhile, this one takes that instead
// of its own: of a prefix that somebody holds there is one copy.
//
// Taken: the longest prefix of which every KV group has what it needs: a full group all blocks, a window or chunk group those
// that the next row can still see, and each the last block, so that nothing is taken that was never there. At least the last
// token is computed, for its logits, and prompt tokens whose log-probabilities are still to be reported are. A sequence looks
// at its admission and, while it computes its prompt, before every step: so of several that came at once with one prefix all
// but one find what that one computes (TakeOutFollowers), choices of one request like strangers.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "engine/engine_options.h"
#include "engine/scheduler/block_pool.h"
#include "engine/scheduler/prefix_index.h"
#include "engine/scheduler/sequence.h"

namespace sluice {

// A prefix that a sequence may take.
struct PrefixHit {
  int32_t num_blocks = 0;  // of the sequence's tokens, from the first; those that it has computed itself included
  int32_t num_live = 0;    // blocks of full groups among them that others hold now: they take no room
};

// Not thread-safe: owned by the engine thread. Without EngineOptions::prefix_cache nothing is ever found or put. A function
// that is given a sequence may extend Sequence::block_ids.
class PrefixCache {
 public:
  // Both outlive the cache.
  PrefixCache(const EngineOptions& options, BlockPool* pool);

  bool enabled() const { return index_.has_value(); }
  KvSalt SaltOf(absl::string_view cache_salt) const;  // of Request::cache_salt

  // What `s`, which waits and holds nothing, would take.
  PrefixHit Find(Sequence* s);

  // Takes it: its blocks are in the tables of `s`, and its tokens are computed. REQUIRES: the hit is the last that Find has
  // returned, for `s`, and the pool is as it was; it has room (BlockTable::Share)
  void Take(const PrefixHit& hit, Sequence* s);

  // Takes what `s`, which runs, finds behind what it has computed, in place of blocks that it holds for that; false: nothing.
  // Its window and chunk tables may then lack entries for the rest of its tokens; blocks for these are available.
  bool CatchUp(Sequence* s);

  // Puts the full blocks of `s` that are computed and have not been put. To be called before blocks that nobody sees any more
  // leave its tables.
  void Publish(Sequence* s);

  // The rows of `prompts` have been divided among them. Takes those out, whatever rows they have got, whose next block
  // another one completes with the rows it has; the first, which is the oldest, stays. True if any went: then the rows of the
  // others want dividing again, in which nobody who stays gets fewer.
  bool TakeOutFollowers(std::vector<Sequence*>* prompts);

  // Tells the index that a block holds something else from now on (BlockPool's `forget`).
  void Forget(int32_t block) { index_->Forget(block); }

  // Since the start: prompt tokens of sequences that have looked for a prefix, and how many of them were taken, each
  // sequence's once. What a preempted sequence takes of what it had computed before counts in neither.
  int64_t num_queried_tokens() const { return num_queried_tokens_; }
  int64_t num_hit_tokens() const { return num_hit_tokens_; }

  // For tests and debug builds: dies if the index and the pool disagree.
  void CheckInvariants() const;

 private:
  // Block `index` of `s`. REQUIRES: its tokens are known
  KvKey KeyOf(const Sequence& s, int32_t index) const;
  // ... and its name.
  KvKeyId IdOf(Sequence* s, int32_t index);
  // How many blocks from the first on `s` may take at most.
  int32_t Limit(const Sequence& s) const;
  // What `s` finds behind what it has computed. With `gapless` the search ends at the first block that any group lacks.
  PrefixHit Search(Sequence* s, bool gapless);

  const EngineOptions& options_;
  BlockPool* const pool_;
  std::optional<PrefixIndex> index_;  // none: not enabled

  // Of the last search: blocks by group, from the first that was looked for, and how many of them up to the last one are
  // there without a gap, those that the sequence has computed included.
  std::vector<std::vector<int32_t>> found_;
  std::vector<int32_t> run_;
  absl::flat_hash_map<KvKeyId, const Sequence*> leaders_;

  int64_t num_queried_tokens_ = 0;
  int64_t num_hit_tokens_ = 0;
};

}  // namespace sluice
