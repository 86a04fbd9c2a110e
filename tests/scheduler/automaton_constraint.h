// A TokenConstraint of a random automaton: a table of states, tokens and next states. It holds its caller to the contract of
// engine/token_constraint.h, and its own copy of what has come can be compared with the output.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "engine/base/token_bitmask.h"
#include "engine/token_constraint.h"

namespace sluice::testing {

struct Automaton {
  static constexpr int32_t kNone = -1;
  // [state][token] the next state, or kNone: the token may not come. The first state is 0.
  std::vector<std::vector<int32_t>> next;
  std::vector<bool> complete;  // [state]

  bool IsDeadEnd(int32_t state) const {
    for (int32_t to : next[size_t(state)]) {
      if (to != kNone) return false;
    }
    return true;
  }
  // The state behind `tokens`; kNone if they may not come.
  int32_t StateBehind(absl::Span<const int32_t> tokens) const {
    int32_t state = 0;
    for (int32_t token : tokens) {
      state = next[size_t(state)][size_t(token)];
      if (state == kNone) return kNone;
    }
    return state;
  }
};

// Some states let much follow, some little and some, complete or not, nothing at all.
inline std::shared_ptr<const Automaton> RandomAutomaton(int32_t vocab_size, uint32_t seed) {
  std::mt19937 rng(seed);
  const auto uniform = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(rng); };
  auto automaton = std::make_shared<Automaton>();
  const int num_states = uniform(1, 8);
  for (int state = 0; state < num_states; ++state) {
    std::vector<int32_t>& next = automaton->next.emplace_back(size_t(vocab_size), Automaton::kNone);
    automaton->complete.push_back(uniform(0, 2) == 0);
    if (uniform(0, 7) == 0) continue;
    const int one_in = uniform(0, 1) == 0 ? 2 : vocab_size / 2;
    for (int32_t& to : next) {
      if (uniform(1, one_in) == 1) to = uniform(0, num_states - 1);
    }
  }
  return automaton;
}

class AutomatonConstraint : public TokenConstraint {
 public:
  explicit AutomatonConstraint(std::shared_ptr<const Automaton> automaton) : automaton_(std::move(automaton)) {}

  void FillMask(std::span<uint32_t> words) override {
    const std::vector<int32_t>& next = automaton_->next[size_t(state())];
    ASSERT_EQ(words.size(), size_t(TokenBitmaskWords(int32_t(next.size()))));
    // What is left over of the last word means nothing.
    for (uint32_t& word : words) word = ~uint32_t{0};
    for (size_t token = 0; token < next.size(); ++token) SetToken(words, int32_t(token), next[token] != Automaton::kNone);
  }
  bool Advance(int32_t token) override {
    const int32_t to = automaton_->next[size_t(state())][size_t(token)];
    if (to == Automaton::kNone) return false;
    states_.push_back(to);
    return true;
  }
  void Rollback(int32_t num_tokens) override {
    ASSERT_LT(size_t(num_tokens), states_.size()) << "more than there were";
    states_.resize(states_.size() - size_t(num_tokens));
  }
  bool may_stop() const override { return automaton_->complete[size_t(state())]; }
  bool is_finished() const override { return may_stop() && automaton_->IsDeadEnd(state()); }
  const Automaton& automaton() const { return *automaton_; }
  std::unique_ptr<TokenConstraint> Clone() const override { return std::make_unique<AutomatonConstraint>(*this); }

 private:
  int32_t state() const { return states_.back(); }

  std::shared_ptr<const Automaton> automaton_;
  std::vector<int32_t> states_ = {0};  // the first, and that behind each token
};

}  // namespace sluice::testing
