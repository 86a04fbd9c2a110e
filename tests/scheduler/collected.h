// What has come out of a scheduler or an engine, sequence by sequence.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "engine/error_reason.h"
#include "engine/request.h"
#include "tests/scheduler/hash_runner.h"

namespace sluice::testing {

struct Collected {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  std::vector<float> prompt_logprobs;
  SequenceOutput last;  // meaningful once finished
  bool finished() const { return last.finish_reason != FinishReason::kNone; }
};

class Collector {
 public:
  // A sequence that says something after its last output is a test failure.
  void Add(std::vector<SequenceOutput> outputs) {
    for (SequenceOutput& output : outputs) {
      Collected& c = by_id_[output.id];
      EXPECT_FALSE(c.finished()) << "sequence " << output.id << " goes on after its last output";
      c.tokens.insert(c.tokens.end(), output.tokens.begin(), output.tokens.end());
      for (const TokenLogprobs& l : output.logprobs) c.logprobs.push_back(l.chosen.logprob);
      for (const TokenLogprobs& l : output.prompt_logprobs) c.prompt_logprobs.push_back(l.chosen.logprob);
      if (output.finish_reason == FinishReason::kNone) continue;
      c.last = std::move(output);
      ++num_finished_;
    }
  }

  const Collected& operator[](SequenceId id) { return by_id_[id]; }
  int num_finished() const { return num_finished_; }

 private:
  std::map<SequenceId, Collected> by_id_;
  int num_finished_ = 0;
};

// `actual` ran to its end and is what `request` gets when it is alone in the world.
inline void ExpectAsAlone(const Collected& actual, const Request& request, const EngineOptions& options) {
  const Expected expected = ExpectedOutput(request, options);
  EXPECT_EQ(actual.tokens, expected.tokens);
  EXPECT_EQ(actual.logprobs, expected.logprobs);
  EXPECT_EQ(actual.prompt_logprobs, expected.prompt_logprobs);
  EXPECT_EQ(actual.last.finish_reason, expected.finish_reason);
  EXPECT_EQ(actual.last.stop_token, expected.stop_token);
  EXPECT_EQ(ReasonOf(actual.last.error), expected.error_reason);
}

// A prompt of `length` tokens that no other call with another `salt` makes.
inline std::vector<int32_t> MakePrompt(int32_t length, int32_t salt, int32_t vocab_size) {
  std::vector<int32_t> tokens(length);
  for (int32_t i = 0; i < length; ++i) tokens[i] = (i * 7 + salt * 13 + i * salt + 1) % vocab_size;
  return tokens;
}

}  // namespace sluice::testing
