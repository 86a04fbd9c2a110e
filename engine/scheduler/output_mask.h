// Which tokens a sequence may draw next, by its request's allowed_token_ids and its TokenConstraint together.
//
// The two differ in one thing: the allowed ids are the same at every position, so they are a bitmask that is made once and that
// every row of the sequence points to. A sequence with them alone waits for nobody. What a constraint allows follows from the
// tokens before, so that a sequence that has one must know them all before its next row is planned.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/types/span.h"
#include "engine/engine_options.h"
#include "engine/request.h"
#include "engine/token_constraint.h"

namespace sluice {

class OutputMask {
 public:
  // REQUIRES: ValidateRequest(request, options).ok()
  OutputMask(const Request& request, const EngineOptions& options);

  // Whether it depends on the tokens drawn before.
  bool follows_output() const { return constraint_ != nullptr; }

  // Of a sequence that follows nothing, for any row: what may be drawn; empty if that is everything.
  std::span<const uint32_t> fixed() const { return fixed_; }

  // ---- REQUIRES for all below: follows_output()

  int32_t num_words() const { return num_words_; }  // of a mask

  // How many of `drafts` may come, one after the other, before an end token.
  int32_t CountPossible(absl::Span<const int32_t> drafts);

  // Masks of what may come next and behind each of `drafts`, as if those before it had come: [1 + drafts.size(), num_words()].
  // Such as are behind a draft that may not come are empty.
  void Fill(absl::Span<const int32_t> drafts, absl::Span<uint32_t> words);

  // Whether nothing may come next, `masked` tokens left out.
  bool AllowsNothing(absl::Span<const int32_t> masked);

  // Takes a token that was drawn and is no end; false: it may not come, and the constraint has contradicted itself.
  bool Advance(int32_t token) { return constraint_->Advance(token); }
  bool may_stop() const { return constraint_->may_stop(); }
  bool is_finished() const { return constraint_->is_finished(); }

 private:
  void FillNext(std::span<uint32_t> mask);
  bool IsEnd(int32_t token) const;

  const int32_t vocab_size_, num_words_;
  const std::vector<int32_t> eos_token_ids_, stop_token_ids_;
  const bool ignore_eos_;
  std::vector<uint32_t> fixed_;
  std::unique_ptr<TokenConstraint> constraint_;
};

}  // namespace sluice
