// Drafts that a test knows to be right or wrong: the tokens that a request must get, with mistakes in between.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <random>
#include <vector>

#include "engine/scheduler/sequence.h"
#include "engine/scheduler/token_drafter.h"
#include "tests/scheduler/hash_runner.h"

namespace sluice::testing {

class OracleDrafter : public TokenDrafter {
 public:
  // One draft in `one_wrong_in` is wrong, each with the same chance; 0: none.
  explicit OracleDrafter(const EngineOptions& options, int one_wrong_in, uint32_t seed = 1, int32_t most_at_once = 5)
      : options_(options), one_wrong_in_(one_wrong_in), most_at_once_(most_at_once), rng_(seed) {}

  // Drafts for the sequence `id`; without, it has none.
  void Know(SequenceId id, const Request& request) { outputs_[id] = ExpectedOutput(request, options_).tokens; }

  bool Wants(const Sequence& sequence) override { return outputs_.contains(sequence.id); }

  void Draft(const Sequence& sequence, int32_t max_tokens, std::vector<int32_t>* drafts) override {
    EXPECT_GE(max_tokens, 1);
    EXPECT_EQ(sequence.num_drawing, 0) << "not all its tokens are known";
    EXPECT_EQ(sequence.num_drafts, 0);
    const auto it = outputs_.find(sequence.id);
    if (it == outputs_.end()) return;
    const size_t first = sequence.output().size();
    const int32_t count = std::min(max_tokens, Uniform(0, most_at_once_));
    for (int32_t i = 0; i < count; ++i) {
      const size_t index = first + size_t(i);
      // Behind a token that ends the sequence there may be anything.
      int32_t token = index < it->second.size() ? it->second[index] : Uniform(0, options_.vocab_size - 1);
      if (one_wrong_in_ > 0 && Uniform(1, one_wrong_in_) == 1) token = (token + 1) % options_.vocab_size;
      drafts->push_back(token);
      ++num_drafts;
    }
  }

  int64_t num_drafts = 0;  // so far

 private:
  int32_t Uniform(int32_t low, int32_t high) { return std::uniform_int_distribution<int32_t>(low, high)(rng_); }

  const EngineOptions options_;
  const int one_wrong_in_;
  const int32_t most_at_once_;
  std::mt19937 rng_;
  std::map<SequenceId, std::vector<int32_t>> outputs_;
};

}  // namespace sluice::testing
