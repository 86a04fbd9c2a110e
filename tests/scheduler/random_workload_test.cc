// Random requests arrive, are cancelled and expire at random moments in pools too small for them, with a prefix cache and
// without. After every step the books must balance (Scheduler::CheckInvariants, HashRunner's checks of the plan); in the end
// every request has ended exactly once, whoever was left alone got what it would have got alone in the world, and nobody has
// found more in the cache than others of its salt have computed. Some may say only certain tokens, or what an automaton accepts;
// all others get what they get without those.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <tuple>

#include "tests/scheduler/automaton_constraint.h"
#include "tests/scheduler/oracle_drafter.h"
#include "tests/scheduler/scheduler_harness.h"

namespace sluice {
namespace {

using testing::MakePrompt;
using testing::SchedulerHarness;

// Of a seed, whether steps are planned while the one before is in flight, and whether tokens are drafted.
class RandomWorkloadTest : public ::testing::TestWithParam<std::tuple<int, bool, bool>> {
 protected:
  int Uniform(int low, int high) { return std::uniform_int_distribution<int>(low, high)(rng_); }
  bool OneIn(int n) { return Uniform(1, n) == 1; }

  std::vector<AttentionMask> RandomGroups() {
    std::vector<AttentionMask> groups(size_t(Uniform(1, 4)));
    for (AttentionMask& mask : groups) {
      const MaskKind kinds[] = {MaskKind::kFull, MaskKind::kWindow, MaskKind::kChunk};
      mask = {kinds[Uniform(0, 2)], OneIn(5) ? 1 : Uniform(2, 80)};
    }
    return groups;
  }

  EngineOptions RandomOptions() {
    EngineOptions options;
    options.vocab_size = Uniform(20, 200);
    options.eos_token_ids = {options.vocab_size - 1};
    if (OneIn(2)) options.eos_token_ids.push_back(options.vocab_size - 2);
    options.block_size = OneIn(3) ? 1 : Uniform(2, 16);
    options.max_model_len = Uniform(20, 200);
    options.max_num_seqs = Uniform(1, 16);
    options.max_num_batched_tokens = std::max(options.max_num_seqs, OneIn(2) ? 7 : Uniform(1, 64));
    options.max_prefill_tokens_beside_decodes = OneIn(2) ? 0 : Uniform(1, 16);
    if (!OneIn(4)) options.kv_groups = RandomGroups();
    options.prefix_cache = !OneIn(4);
    options.prefix_cache_root = absl::MakeUint128(rng_(), rng_());
    if (OneIn(3)) options.numerics.mla_expand_from = Uniform(1, options.max_model_len);
    if (OneIn(3)) options.numerics.rope.change_behind = {Uniform(1, options.max_model_len)};
    if (OneIn(4)) options.admit_by_forecast = false;
    const int32_t peak = int32_t(PeakBlocks(options.max_model_len, options));
    options.num_blocks = Uniform(peak, 3 * peak);
    return options;
  }

  // One of its own, or one that begins like what somebody else has said or been told.
  std::vector<int32_t> RandomPrompt(int32_t length, int32_t vocab_size) {
    std::vector<int32_t> prompt = MakePrompt(length, Uniform(0, 1000), vocab_size);
    if (requests_.empty() || OneIn(3)) return prompt;
    const std::vector<int32_t> other = TokensOf(SequenceId(Uniform(1, int(requests_.size()))));
    const int32_t shared = OneIn(2) ? INT32_MAX : Uniform(0, int(other.size()));
    std::copy_n(other.begin(), std::min({shared, length, int32_t(other.size())}), prompt.begin());
    return prompt;
  }
  // Prompt and output so far.
  std::vector<int32_t> TokensOf(SequenceId id) {
    std::vector<int32_t> tokens = requests_.at(id).prompt_tokens;
    const std::vector<int32_t>& output = h_->collected[id].tokens;
    tokens.insert(tokens.end(), output.begin(), output.end());
    return tokens;
  }

  Request RandomRequest(const EngineOptions& options, int64_t now_ns) {
    Request request;
    const int32_t length = Uniform(1, OneIn(4) ? options.max_model_len - 1 : options.max_model_len / 4);
    request.prompt_tokens = RandomPrompt(length, options.vocab_size);
    if (OneIn(3)) request.cache_salt = OneIn(2) ? "a" : "b";
    SamplingParams& sampling = request.sampling;
    sampling.seed = OneIn(20) ? testing::kNonfiniteSeed : uint64_t(Uniform(0, 1 << 20));
    sampling.max_tokens = Uniform(1, options.max_model_len - length);
    sampling.min_tokens = OneIn(3) ? Uniform(0, sampling.max_tokens) : 0;
    sampling.ignore_eos = OneIn(2);
    if (OneIn(4)) sampling.stop_token_ids = {Uniform(0, options.vocab_size - 1)};
    if (OneIn(3)) sampling.logprobs = Uniform(0, 5);
    if (OneIn(3)) sampling.prompt_logprobs = Uniform(0, 5);
    sampling.presence_penalty = OneIn(3) ? 1 : 0;
    if (OneIn(4)) {
      for (int i = Uniform(1, 20); i > 0; --i) sampling.allowed_token_ids.push_back(Uniform(0, options.vocab_size - 1));
      if (!ValidateSampling(sampling, options).ok()) sampling.allowed_token_ids.clear();  // all of them below min_tokens
    }
    if (OneIn(3)) {
      request.constraint = std::make_shared<testing::AutomatonConstraint>(
          testing::RandomAutomaton(options.vocab_size, uint32_t(rng_())));
    }
    if (OneIn(8)) request.deadline_ns = now_ns + Uniform(0, 400);
    return request;
  }

  void CheckEnds(SchedulerHarness* h);
  void CheckCached(SchedulerHarness* h);

  const bool runs_ahead_ = std::get<1>(GetParam()), drafts_ = std::get<2>(GetParam());
  std::mt19937 rng_{uint32_t(std::get<0>(GetParam()))};
  SchedulerHarness* h_ = nullptr;
  std::map<SequenceId, Request> requests_;
  std::map<SequenceId, FinishReason> cancelled_;
};

// The automaton takes all that came, but for an end token, which comes where it is complete.
void ExpectAccepted(const testing::Collected& c, const Request& request) {
  const auto* constraint = dynamic_cast<const testing::AutomatonConstraint*>(request.constraint.get());
  const testing::Automaton& automaton = constraint->automaton();
  absl::Span<const int32_t> text = c.tokens;
  const int32_t end = c.last.stop_token;
  if (end >= 0) text.remove_suffix(1);
  const int32_t state = automaton.StateBehind(text);
  ASSERT_NE(state, testing::Automaton::kNone);
  const bool is_stop_token = c.last.finish_reason == FinishReason::kStopSequence;
  const bool may_follow = end >= 0 && is_stop_token && automaton.next[size_t(state)][size_t(end)] != testing::Automaton::kNone;
  EXPECT_TRUE(end < 0 || automaton.complete[size_t(state)] || may_follow);
}

void RandomWorkloadTest::CheckEnds(SchedulerHarness* h) {
  EXPECT_EQ(h->collected.num_finished(), int(requests_.size()));
  for (const auto& [id, request] : requests_) {
    const testing::Collected& c = h->collected[id];
    const FinishReason reason = c.last.finish_reason;
    const testing::Expected expected = testing::ExpectedOutput(request, h->options);
    if (request.constraint != nullptr) ExpectAccepted(c, request);
    for (int32_t token : c.tokens) {
      const std::vector<int32_t>& allowed = request.sampling.allowed_token_ids;
      EXPECT_TRUE(allowed.empty() || std::ranges::count(allowed, token) > 0);
    }
    if (cancelled_.contains(id) && reason == cancelled_[id]) {
      // However early it ended, what it got was right.
      ASSERT_LE(c.tokens.size(), expected.tokens.size());
      EXPECT_TRUE(std::equal(c.tokens.begin(), c.tokens.end(), expected.tokens.begin()));
    } else if (reason == FinishReason::kDeadline) {
      EXPECT_GE(c.last.timings.finish_ns, request.deadline_ns.value());
    } else {
      ExpectAsAlone(c, request, h->options);
    }
  }
  EXPECT_EQ(h->scheduler.pool().num_live(), 0);
  EXPECT_EQ(h->scheduler.num_waiting_tokens(), 0);
}

void RandomWorkloadTest::CheckCached(SchedulerHarness* h) {
  int64_t num_cached = 0;
  std::map<SequenceId, std::vector<int32_t>> tokens_of;
  for (const auto& [id, request] : requests_) tokens_of[id] = TokensOf(id);
  for (const auto& [id, request] : requests_) {
    const auto length = int32_t(request.prompt_tokens.size());
    int32_t most = 0;
    for (const auto& [other, said] : requests_) {
      if (other == id || said.cache_salt != request.cache_salt) continue;
      const std::vector<int32_t>& tokens = tokens_of[other];
      const auto end = std::mismatch(request.prompt_tokens.begin(), request.prompt_tokens.end() - 1, tokens.begin(), tokens.end());
      most = std::max(most, int32_t(end.first - request.prompt_tokens.begin()));
    }
    const int32_t found = h->collected[id].last.num_cached_tokens;
    EXPECT_LE(found, most / h->options.block_size * h->options.block_size) << "found what nobody of its salt has computed";
    EXPECT_LT(found, length);
    const bool looks = h->options.prefix_cache && !request.sampling.prompt_logprobs.has_value();
    EXPECT_TRUE(looks || found == 0);
    num_cached += found;
  }
  EXPECT_EQ(h->scheduler.prefix_cache().num_hit_tokens(), num_cached);
  EXPECT_LE(num_cached, h->scheduler.prefix_cache().num_queried_tokens());
  EXPECT_EQ(h->scheduler.pool().num_promised(), 0);
}

TEST_P(RandomWorkloadTest, TheBooksBalanceAndEveryoneGetsWhatIsTheirs) {
  const EngineOptions options = RandomOptions();
  testing::OracleDrafter drafter(options, Uniform(0, 5), uint32_t(std::get<0>(GetParam())));
  SchedulerHarness h(options, runs_ahead_, drafts_ ? &drafter : nullptr);
  ASSERT_EQ(ValidateEngineOptions(h.options), absl::OkStatus());
  h_ = &h;
  const int num_requests = 60;
  // The oldest sequence moves by a row or more in each step, two turns at most, and is preempted by nobody: that bounds
  // the whole run.
  int64_t max_steps = 0;
  while (int(requests_.size()) < num_requests || h.has_work()) {
    while (int(requests_.size()) < num_requests && OneIn(3)) {
      const Request request = RandomRequest(h.options, h.now_ns);
      // Sometimes several choices of it.
      for (int choices = OneIn(4) ? 3 : 1; choices > 0; --choices) {
        max_steps += (int64_t(request.prompt_tokens.size()) + request.sampling.max_tokens) * (runs_ahead_ ? 2 : 1);
        const SequenceId id = h.Add(request);
        drafter.Know(id, request);
        requests_.emplace(id, request);
      }
    }
    if (!requests_.empty() && OneIn(10)) {
      const SequenceId id = SequenceId(Uniform(1, int(requests_.size())));
      const FinishReason reason = OneIn(2) ? FinishReason::kCancelled : FinishReason::kStopSequence;
      if (!h.collected[id].finished()) cancelled_[id] = reason;
      h.Finish(id, reason);
    }
    h.FinishExpired();
    if (!h.has_work()) continue;
    ASSERT_GE(--max_steps, 0) << "no progress";
    h.Step();
    if (HasFailure()) return;
  }
  CheckEnds(&h);
  CheckCached(&h);
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomWorkloadTest,
                         ::testing::Combine(::testing::Range(0, 200), ::testing::Bool(), ::testing::Bool()),
                         [](const auto& info) {
                           return std::to_string(std::get<0>(info.param)) + (std::get<1>(info.param) ? "Ahead" : "") +
                                  (std::get<2>(info.param) ? "Drafts" : "");
                         });

}  // namespace
}  // namespace sluice
