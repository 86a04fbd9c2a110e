// The real model's tokens and log-probabilities, bit for bit: whoever shares the batch, however the prompt is cut,
// after a preemption, with any number of threads, on any instruction set.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "engine/base/cpu_info.h"
#include "engine/engine.h"
#include "tests/model/real_model.h"
#include "tests/model/step_driver.h"
#include "tests/sanitized.h"
#include "tests/scheduler/engine_harness.h"

namespace sluice::testing {
namespace {

constexpr int32_t kNumNew = kSanitized ? 8 : 24;
constexpr int32_t kLongChunk = kSanitized ? 96 : 512;

struct Answer {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
};

std::map<std::string, std::vector<int32_t>> Prompts() {
  std::ifstream file(std::string(SLUICE_SOURCE_DIR) + "/tests/goldens/smollm2_greedy.json");
  std::map<std::string, std::vector<int32_t>> prompts;
  const nlohmann::json golden = nlohmann::json::parse(file);
  for (const nlohmann::json& prompt : golden["prompts"]) {
    prompts[prompt["id"]] = prompt["ids"].get<std::vector<int32_t>>();
  }
  return prompts;
}

class RealModelBitsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (RealModel() == nullptr) GTEST_SKIP() << RealModelMissing();
    prompts_ = Prompts();
    prompt_ = prompts_.at("chat-3");
    long_prompt_ = prompts_.at("long-chat-2");
    if (kSanitized) long_prompt_.resize(kLongChunk + 16);
    ASSERT_GT(long_prompt_.size(), size_t(kLongChunk));
  }

  static std::unique_ptr<Runner> NewRunner(const RealRunnerOptions& options = {}) {
    absl::StatusOr<std::unique_ptr<Runner>> runner = NewRealRunner(options);
    EXPECT_TRUE(runner.ok()) << runner.status();
    return *std::move(runner);
  }

  // Drawn with a seed, so that a difference in any logit can show.
  static SamplingParams Drawn() {
    SamplingParams params = Greedy();
    params.temperature = 0.8f;
    params.top_p = 0.95f;
    params.seed = 17;
    return params;
  }

  static Answer AnswerOf(const TestSequence& sequence) {
    Answer answer;
    answer.tokens.assign(sequence.tokens.begin() + sequence.num_prompt, sequence.tokens.end());
    for (const TokenLogprobs& logprobs : sequence.logprobs) answer.logprobs.push_back(logprobs.chosen.logprob);
    return answer;
  }

  static Answer Alone(Runner* runner, const std::vector<int32_t>& prompt, int32_t chunk) {
    StepDriver driver(runner, uint32_t(chunk));
    TestSequence* sequence = driver.Add(prompt, Drawn());
    driver.Generate(sequence, chunk, kNumNew);
    return AnswerOf(*sequence);
  }

  static void ExpectSame(const Answer& actual, const Answer& expected) {
    EXPECT_EQ(actual.tokens, expected.tokens);
    EXPECT_EQ(actual.logprobs, expected.logprobs);
    EXPECT_EQ(expected.logprobs.size(), size_t(kNumNew));
  }

  std::map<std::string, std::vector<int32_t>> prompts_;
  std::vector<int32_t> prompt_, long_prompt_;
};

TEST_F(RealModelBitsTest, ChunksOf7And32And512) {
  const std::unique_ptr<Runner> runner = NewRunner({.max_num_batched_tokens = 1024});
  for (const std::vector<int32_t>& prompt : {prompt_, long_prompt_}) {
    const Answer whole = Alone(runner.get(), prompt, 1024);
    for (const int32_t chunk : {7, 32, kLongChunk}) {
      SCOPED_TRACE(chunk);
      ExpectSame(Alone(runner.get(), prompt, chunk), whole);
    }
  }
}

TEST_F(RealModelBitsTest, InABatchOf15StrangersThatComeAndGo) {
  const std::unique_ptr<Runner> runner = NewRunner();
  const Answer alone = Alone(runner.get(), prompt_, 512);
  StepDriver driver(runner.get(), 9);
  std::vector<TestSequence*> strangers;
  for (const auto& [id, ids] : prompts_) {
    if (strangers.size() < 15 && ids != prompt_ && ids.size() < 100) strangers.push_back(driver.Add(ids, Drawn()));
  }
  ASSERT_EQ(strangers.size(), 15u);
  TestSequence* sequence = driver.Add(prompt_, Drawn());
  for (int step = 0; int32_t(sequence->tokens.size()) < sequence->num_prompt + kNumNew; ++step) {
    std::vector<StepDriver::Part> parts;
    for (size_t i = 0; i < strangers.size(); ++i) {
      TestSequence* s = strangers[i];
      const int32_t left = int32_t(s->tokens.size()) - s->num_computed;
      if ((step + int(i)) % 5 != 0) parts.push_back({s, std::min(left, 11)});
      if (i == 7) parts.push_back({sequence, std::min(int32_t(sequence->tokens.size()) - sequence->num_computed, 19)});
    }
    driver.Step(parts);
  }
  ExpectSame(AnswerOf(*sequence), alone);
}

TEST_F(RealModelBitsTest, OneThreadOrTwo) {
  const Answer two = Alone(NewRunner({.num_threads = 2}).get(), prompt_, 64);
  ExpectSame(Alone(NewRunner({.num_threads = 1}).get(), prompt_, 64), two);
  ExpectSame(Alone(NewRunner({.num_threads = 3}).get(), prompt_, 64), two);
}

TEST_F(RealModelBitsTest, EveryInstructionSetAndKindOfActivation) {
  for (const ActivationType activations : {ActivationType::kInt16, ActivationType::kInt8, ActivationType::kF32}) {
    std::optional<Answer> first;
    for (const Isa isa : SupportedIsas()) {
      if (isa == Isa::kPortable) continue;  // too slow for a whole model; tests/ops compares its kernels
      SCOPED_TRACE(IsaName(isa));
      const Answer answer = Alone(NewRunner({.activations = activations, .isa = isa}).get(), prompt_, 64);
      if (!first.has_value()) first = answer;
      ExpectSame(answer, *first);
    }
  }
}

// Twice the same prompt, and once with another end: what is found of it changes no bit.
TEST_F(RealModelBitsTest, WithAPrefixFoundInTheCacheOfTheEngine) {
  std::unique_ptr<Runner> alone_runner = NewRunner();
  const RealRunnerOptions runner_options = {.num_blocks = 64, .max_num_seqs = 8, .max_num_batched_tokens = 64, .max_model_len = 512};
  EngineOptions options;
  options.max_model_len = 512;
  options.vocab_size = RealModel()->spec.vocab_size;
  options.max_num_seqs = 8;
  options.max_num_batched_tokens = 64;
  options.num_blocks = 64;
  options.prefix_cache = true;
  RecordingSink sink;
  absl::StatusOr<std::unique_ptr<Engine>> engine =
      Engine::Create(options, NewRunner(runner_options), &sink, Clock::Real());
  ASSERT_TRUE(engine.ok()) << engine.status();
  std::vector<int32_t> other = prompt_;
  other[50] = other[49];
  const auto last = int32_t(prompt_.size()) - 1;
  int num_requests = 0;
  for (const auto& [prompt, cached] : {std::pair(prompt_, 0), {prompt_, last / 16 * 16}, {other, 48}}) {
    SCOPED_TRACE(++num_requests);
    Request request;
    request.prompt_tokens = prompt;
    request.sampling = Drawn();
    request.sampling.max_tokens = kNumNew;
    request.sampling.ignore_eos = true;
    const SequenceId id = SubmitOne(engine->get(), request);
    sink.WaitForFinished(num_requests);
    const Collected result = sink.Get(id);
    ExpectSame({result.tokens, result.logprobs}, Alone(alone_runner.get(), prompt, 512));
    EXPECT_EQ(result.last.num_cached_tokens, cached);
  }
}

TEST_F(RealModelBitsTest, AfterPreemptionInTheEngine) {
  std::unique_ptr<Runner> alone_runner = NewRunner();
  // Sequences of about 84 + 100 tokens want 12 blocks each; the pool has 40 for six.
  constexpr int kNumSequences = kSanitized ? 3 : 6, kNumBlocks = kSanitized ? 20 : 40;
  EngineOptions options;
  options.max_model_len = 512;
  options.vocab_size = RealModel()->spec.vocab_size;
  options.max_num_seqs = 8;
  options.max_num_batched_tokens = 64;
  options.num_blocks = kNumBlocks;
  options.admit_by_forecast = false;  // so that there are preemptions
  RecordingSink sink;
  absl::StatusOr<std::unique_ptr<Engine>> engine = Engine::Create(
      options,
      NewRunner({.num_blocks = kNumBlocks, .max_num_seqs = 8, .max_num_batched_tokens = 64, .max_model_len = 512}),
      &sink, Clock::Real());
  ASSERT_TRUE(engine.ok()) << engine.status();
  std::vector<Request> requests(kNumSequences);
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].prompt_tokens = prompt_;
    requests[i].sampling = Drawn();
    requests[i].sampling.seed += i;
    requests[i].sampling.max_tokens = 100;
    requests[i].sampling.ignore_eos = true;
  }
  const absl::StatusOr<std::vector<SequenceId>> ids = (*engine)->Submit(requests);
  ASSERT_TRUE(ids.ok()) << ids.status();
  sink.WaitForFinished(int(requests.size()));
  EXPECT_GT((*engine)->Stats().num_preemptions, 0);
  int num_preempted = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(i);
    const Collected result = sink.Get(ids->at(i));
    num_preempted += result.last.num_preemptions > 0;
    StepDriver driver(alone_runner.get());
    TestSequence* sequence = driver.Add(prompt_, requests[i].sampling);
    driver.Generate(sequence, 512, 100);
    const Answer alone = AnswerOf(*sequence);
    EXPECT_EQ(result.tokens, alone.tokens);
    EXPECT_EQ(result.logprobs, alone.logprobs);
  }
  EXPECT_GT(num_preempted, 0);
}

}  // namespace
}  // namespace sluice::testing
