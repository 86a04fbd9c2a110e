// What the output of a sequence must be like, token by token: a grammar, a schema, an automaton. The scheduler asks which
// tokens may come next, tells what was drawn, and ends the sequence where the constraint says so.
//
//   FillMask -> {a}   drawn: a   Advance(a)   FillMask -> {b, c}   drafted: b   Advance(b)   FillMask -> {}, may_stop()
//   the draft was wrong, drawn: c   Rollback(1)   Advance(c)   ...
//
// End tokens of the model are not its business: they may come where may_stop() is true and nowhere else, and so may the
// request's stop tokens, beside where the mask has them. A stop string, max_tokens, a cancellation end a sequence wherever it
// stands. min_tokens keeps end and stop tokens back as ever, but what is finished has ended. Where nothing may come the
// sequence ends: as complete if may_stop(), else with NO_TOKEN_ALLOWED (engine/error_reason.h).
//
// One thread at a time: that of the engine, between steps, so every call should take microseconds. No exception leaves.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

namespace sluice {

class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;

  // Sets the bits of the tokens that may come next and clears all others (base/token_bitmask.h). One that cannot go on, for
  // whatever reason, clears all. REQUIRES: TokenBitmaskWords(vocab_size) words
  virtual void FillMask(std::span<uint32_t> words) = 0;

  // The token that comes next, never an end token of the model. False: it may not come here, and nothing has changed.
  virtual bool Advance(int32_t token) = 0;

  // Takes the last `num_tokens` tokens of Advance back. REQUIRES: there were as many since the clone was made
  virtual void Rollback(int32_t num_tokens) = 0;

  // What has come is complete as it stands.
  virtual bool may_stop() const = 0;

  // ... and nothing may follow it: the sequence ends without an end token.
  virtual bool is_finished() const = 0;

  // In the same state, and independent from now on. Of a constraint that nobody advances any number may be made at a time, on
  // any threads.
  virtual std::unique_ptr<TokenConstraint> Clone() const = 0;
};

}  // namespace sluice
