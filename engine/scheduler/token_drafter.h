// Who guesses the tokens that come next. A guess costs a row of a step and, where it is right, saves a step: a token drawn
// depends on (seed, position), the logits and what penalties count, so a drafted token is right exactly if it is the one
// that would have been drawn, and a sequence gets the same tokens with drafts as without, at any temperature.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace sluice {

struct Sequence;

class TokenDrafter {
 public:
  virtual ~TokenDrafter() = default;

  // Whether `sequence`, of which a step in flight draws a token, is to wait for it so that its next ones can be drafted. A
  // sequence that does not wait has no drafts while steps are planned ahead. On the engine thread.
  virtual bool Wants(const Sequence& sequence) = 0;

  // Appends at most `max_tokens` (>= 1) tokens of the vocabulary that may follow the tokens of `sequence`, all of which are
  // known, to `drafts`. On the engine thread, while a step is planned; must return at once.
  virtual void Draft(const Sequence& sequence, int32_t max_tokens, std::vector<int32_t>* drafts) = 0;
};

}  // namespace sluice
