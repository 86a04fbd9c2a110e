#include "engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "engine/error_reason.h"
#include "engine/retry_after.h"
#include "tests/scheduler/engine_harness.h"
#include "tests/scheduler/scheduler_harness.h"

namespace sluice {
namespace {

using testing::ExpectAsAlone;
using testing::EngineTest;
using testing::ExpectAtRest;
using testing::FakeClock;
using ::testing::HasSubstr;
using testing::MakeEngine;
using testing::MakeRequest;
using testing::PromptOf;
using testing::RecordingSink;
using testing::Refusal;
using testing::SmallOptions;
using testing::StepGate;
using testing::SubmitOne;

TEST_F(EngineTest, RefusesOptionsThatMakeNoSense) {
  EngineOptions options = SmallOptions();
  options.max_num_batched_tokens = 3;
  const auto engine = Engine::Create(options, std::make_unique<testing::HashRunner>(options), &sink_, clock_);
  EXPECT_EQ(engine.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(engine.status().message()), HasSubstr("max_num_batched_tokens"));
}

TEST_F(EngineTest, GivesEachRequestItsTokensAndOneCallPerStep) {
  Start(SmallOptions());
  std::vector<Request> requests;
  for (int i = 0; i < 20; ++i) {
    requests.push_back(PromptOf(3 + 5 * i, 20, i + 1));
    if (i % 3 == 0) requests.back().sampling.logprobs = 1;
    if (i % 4 == 0) requests.back().sampling.prompt_logprobs = 0;
  }
  const std::vector<SequenceId> ids = engine_->Submit(requests).value();
  sink_.WaitForFinished(20);
  for (int i = 0; i < 20; ++i) ExpectAsAlone(sink_.Get(ids[i]), requests[i], options_);
  const EngineStats stats = engine_->Stats();
  ExpectAtRest(stats);
  EXPECT_EQ(stats.num_steps, sink_.num_steps());
  EXPECT_EQ(stats.num_generation_tokens, 20 * 20);
  EXPECT_EQ(stats.kv_blocks_total, options_.num_blocks);
}

TEST_F(EngineTest, RequestsThatAreAlikeAreStillTwo) {
  Start(SmallOptions());
  const Request request = PromptOf(5, 10);
  const SequenceId a = SubmitOne(engine_.get(), request);
  const SequenceId b = SubmitOne(engine_.get(), request);
  EXPECT_NE(a, b);
  sink_.WaitForFinished(2);
  ExpectAsAlone(sink_.Get(a), request, options_);
  ExpectAsAlone(sink_.Get(b), request, options_);
}

TEST_F(EngineTest, SleepsWhenThereIsNothingToDo) {
  Start(SmallOptions());
  SubmitOne(engine_.get(), PromptOf(5, 10));
  sink_.WaitForFinished(1);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const int64_t num_reads = clock_.num_reads();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(clock_.num_reads(), num_reads) << "an idle engine looks at its clock";
}

TEST_F(EngineTest, TheContextIsReleasedByWhoeverTookTheLastOutput) {
  Start(SmallOptions());
  auto context = std::make_shared<int>(7);
  const std::weak_ptr<int> watch = context;
  Request request = PromptOf(5, 3);
  request.context = std::move(context);
  const SequenceId id = SubmitOne(engine_.get(), std::move(request));
  sink_.WaitForFinished(1);
  EXPECT_EQ(sink_.Get(id).last.context, watch.lock());
  EXPECT_EQ(watch.use_count(), 1) << "the engine keeps nothing";
}

// ---- Submit ----

TEST_F(EngineTest, DistinguishesPromptsTooLongForContextAndForPool) {
  EngineOptions options = SmallOptions();
  options.num_blocks = 30;  // 120 tokens; the context has 256
  Start(options);
  EXPECT_EQ(ReasonOf(Refusal(engine_.get(), PromptOf(256, 1))), kReasonContextLengthExceeded);
  EXPECT_EQ(ReasonOf(Refusal(engine_.get(), PromptOf(257, 1))), kReasonContextLengthExceeded);
  EXPECT_EQ(ReasonOf(Refusal(engine_.get(), PromptOf(200, 1))), kReasonKvCapacityExceeded);
  const Request request = PromptOf(100, 21);  // fills the pool
  const SequenceId id = SubmitOne(engine_.get(), request);
  sink_.WaitForFinished(1);
  ExpectAsAlone(sink_.Get(id), request, options_);
}

TEST_F(EngineTest, TakesAllOfASubmissionOrNothing) {
  Start(SmallOptions());
  EXPECT_EQ(engine_->Submit({PromptOf(5, 3), PromptOf(5, 3), MakeRequest({5, 1000}, 3)}).status().code(),
            absl::StatusCode::kInvalidArgument);
  ExpectAtRest(engine_->Stats());
  EXPECT_EQ(engine_->Stats().num_steps, 0);
}

TEST_F(EngineTest, RefusesAtOnceWhatTheQueueCannotHold) {
  EngineOptions options = SmallOptions();
  options.max_num_seqs = 1;
  options.max_queued_requests = 3;
  StartGated(options);
  SubmitOne(engine_.get(), PromptOf(5, 5));
  gate_.WaitForStep(1);  // running: it no longer counts; the engine thread is busy in a step from here on
  SubmitOne(engine_.get(), PromptOf(5, 5));
  EXPECT_EQ(engine_->Submit({PromptOf(5, 5), PromptOf(5, 5), PromptOf(5, 5)}).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(engine_->Submit({PromptOf(5, 5), PromptOf(5, 5)}).ok());
  EXPECT_EQ(engine_->Stats().num_waiting, 3);
  EXPECT_EQ(engine_->Stats().num_waiting_tokens, 15);
  for (int i = 0; i < 10; ++i) {
    const absl::Status status = Refusal(engine_.get(), PromptOf(5, 5));
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(ReasonOf(status), kReasonQueueFull);
    EXPECT_THAT(std::string(status.message()), HasSubstr("max_queued_requests (3)"));
  }
  EXPECT_EQ(engine_->Stats().num_waiting, 3) << "what was refused leaves no trace";
  gate_.Open();
  sink_.WaitForFinished(4);
  // More than the limit, but nobody is waiting.
  EXPECT_TRUE(engine_->Submit({PromptOf(5, 5), PromptOf(5, 5), PromptOf(5, 5), PromptOf(5, 5)}).ok());
  sink_.WaitForFinished(8);
}

TEST_F(EngineTest, BoundsTheTokensOfTheQueue) {
  EngineOptions options = SmallOptions();
  options.max_num_seqs = 1;
  options.max_queued_tokens = 100;
  StartGated(options);
  SubmitOne(engine_.get(), PromptOf(5, 5));
  gate_.WaitForStep(1);
  SubmitOne(engine_.get(), PromptOf(60, 5));
  SubmitOne(engine_.get(), PromptOf(40, 5));
  const absl::Status status = Refusal(engine_.get(), PromptOf(1, 5));
  EXPECT_EQ(ReasonOf(status), kReasonQueueFull);
  EXPECT_THAT(std::string(status.message()), HasSubstr("max_queued_tokens (100)"));
  gate_.Open();
  sink_.WaitForFinished(3);
  SubmitOne(engine_.get(), PromptOf(150, 5));  // more than the limit, but nobody is waiting
  sink_.WaitForFinished(4);
}

// ---- Cancel ----

TEST_F(EngineTest, CancellingEverybodyLeavesTheGaugesAtRestWithoutAnotherRequest) {
  StartGated(SmallOptions());
  std::vector<SequenceId> ids;
  for (int i = 0; i < 100; ++i) ids.push_back(SubmitOne(engine_.get(), PromptOf(5, 100, i)));
  for (int step = 1; step <= 3; ++step) {
    gate_.WaitForStep(step);
    gate_.LetOnePass();
  }
  gate_.WaitForStep(4);
  EXPECT_GT(engine_->Stats().kv_blocks_live, 0);
  for (SequenceId id : ids) engine_->Cancel(id);
  gate_.LetOnePass();  // and no other: all must be over with the step in flight
  sink_.WaitForFinished(100);
  ExpectAtRest(engine_->Stats());
  EXPECT_EQ(engine_->Stats().num_steps, 4);
  for (SequenceId id : ids) EXPECT_EQ(sink_.Get(id).last.finish_reason, FinishReason::kCancelled);
}

TEST_F(EngineTest, ACancelTakesEffectAtTheNextStep) {
  StartGated(SmallOptions());
  const SequenceId a = SubmitOne(engine_.get(), PromptOf(5, 100, 1));
  gate_.WaitForStep(1);
  const SequenceId b = SubmitOne(engine_.get(), PromptOf(5, 100, 2));
  gate_.LetOnePass();
  EXPECT_EQ(gate_.WaitForStep(2), 2);
  engine_->Cancel(a, FinishReason::kStopSequence);
  gate_.LetOnePass();
  EXPECT_EQ(gate_.WaitForStep(3), 1) << "the cancelled one is still computed";
  EXPECT_EQ(sink_.Get(a).last.finish_reason, FinishReason::kStopSequence) << "its end waits for the step";
  EXPECT_EQ(engine_->Stats().num_running, 1);
  engine_->Cancel(b);
  gate_.LetOnePass();
  sink_.WaitForFinished(2);
}

TEST_F(EngineTest, CancelsOfNobodyAreIgnored) {
  Start(SmallOptions());
  engine_->Cancel(0);
  engine_->Cancel(12345);
  const Request request = PromptOf(5, 4);
  const SequenceId id = SubmitOne(engine_.get(), request);
  sink_.WaitForFinished(1);
  engine_->Cancel(id);
  SubmitOne(engine_.get(), request);
  sink_.WaitForFinished(2);
  ExpectAsAlone(sink_.Get(id), request, options_);
}

// ---- Deadlines ----

TEST_F(EngineTest, ADeadlineThatHasPassedIsNeverComputed) {
  Start(SmallOptions());
  Request request = PromptOf(5, 4);
  request.deadline_ns = 999;  // it is 1000
  const SequenceId id = SubmitOne(engine_.get(), request);
  sink_.WaitForFinished(1);
  EXPECT_EQ(sink_.Get(id).last.finish_reason, FinishReason::kDeadline);
  EXPECT_EQ(engine_->Stats().num_steps, 0);
  ExpectAtRest(engine_->Stats());
}

TEST_F(EngineTest, DeadlinesEndQueuedAndRunningRequestsAsDeadlines) {
  EngineOptions options = SmallOptions();
  options.max_num_seqs = 1;
  StartGated(options);
  Request request = PromptOf(5, 100);
  request.deadline_ns = 5000;
  const SequenceId running = SubmitOne(engine_.get(), request);
  request.deadline_ns = 4000;
  const SequenceId queued = SubmitOne(engine_.get(), request);
  gate_.WaitForStep(1);
  gate_.LetOnePass();
  gate_.WaitForStep(2);
  clock_.Set(4000);
  gate_.LetOnePass();
  gate_.WaitForStep(3);
  EXPECT_EQ(sink_.Get(queued).last.finish_reason, FinishReason::kDeadline);
  EXPECT_TRUE(sink_.Get(queued).tokens.empty());
  EXPECT_FALSE(sink_.Get(running).finished());
  clock_.Set(5000);
  gate_.LetOnePass();
  sink_.WaitForFinished(2);
  EXPECT_EQ(sink_.Get(running).last.finish_reason, FinishReason::kDeadline);
  EXPECT_EQ(sink_.Get(running).tokens.size(), 3u);
  ExpectAtRest(engine_->Stats());
}

// ---- Drain and stop ----

TEST_F(EngineTest, DrainingFinishesWhatRunsAndSendsTheRestAway) {
  EngineOptions options = SmallOptions();
  options.max_num_seqs = 1;
  StartGated(options);
  const Request request = PromptOf(5, 10);
  const SequenceId running = SubmitOne(engine_.get(), request);
  gate_.WaitForStep(1);
  const SequenceId queued = SubmitOne(engine_.get(), request);
  engine_->Drain();
  const absl::Status status = Refusal(engine_.get(), request);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ReasonOf(status), kReasonDraining);
  EXPECT_TRUE(engine_->Stats().draining);
  gate_.LetOnePass();
  gate_.WaitForStep(2);
  EXPECT_EQ(sink_.Get(queued).last.finish_reason, FinishReason::kError);
  EXPECT_EQ(sink_.Get(queued).last.error.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ReasonOf(sink_.Get(queued).last.error), kReasonDraining);
  gate_.Open();
  sink_.WaitForFinished(2);
  ExpectAsAlone(sink_.Get(running), request, options_);
  ExpectAtRest(engine_->Stats());
  EXPECT_EQ(ReasonOf(Refusal(engine_.get(), request)), kReasonDraining);
}

TEST_F(EngineTest, DrainingFinishesASubmissionOfWhichOneSequenceHasRun) {
  EngineOptions options = SmallOptions();
  options.max_num_seqs = 1;
  StartGated(options);
  // The first ends in the very step that the drain comes in: of the three only waiting ones are left then.
  const std::vector<Request> requests = {PromptOf(5, 1, 1), PromptOf(5, 10, 2), PromptOf(5, 10, 3)};
  const std::vector<SequenceId> begun = engine_->Submit(requests).value();
  gate_.WaitForStep(1);
  const std::vector<SequenceId> queued = engine_->Submit({PromptOf(5, 2), PromptOf(5, 2)}).value();
  engine_->Drain();
  gate_.Open();
  sink_.WaitForFinished(5);
  for (int i = 0; i < 3; ++i) ExpectAsAlone(sink_.Get(begun[i]), requests[i], options_);
  for (SequenceId id : queued) EXPECT_EQ(ReasonOf(sink_.Get(id).last.error), kReasonDraining);
}

TEST_F(EngineTest, DrainingLetsPreemptedRequestsComeBack) {
  EngineOptions options = SmallOptions();
  options.num_blocks = 12;
  StartGated(options);
  ASSERT_TRUE(engine_->Submit(std::vector<Request>(20, testing::ShortOutput(options))).ok());
  int step = 0;
  while (engine_->Stats().busy) {
    gate_.WaitForStep(++step);
    gate_.LetOnePass();
    while (engine_->Stats().num_steps < step) std::this_thread::yield();
  }
  std::vector<Request> requests;
  std::vector<SequenceId> ids;
  for (int i = 0; i < 3; ++i) {
    requests.push_back(PromptOf(6, 30, i + 1));
    requests.back().sampling.ignore_eos = false;
  }
  ids = engine_->Submit(requests).value();
  while (engine_->Stats().num_preemptions == 0) {
    gate_.WaitForStep(++step);
    gate_.LetOnePass();
  }
  engine_->Drain();
  gate_.Open();
  sink_.WaitForFinished(23);
  for (int i = 0; i < 3; ++i) ExpectAsAlone(sink_.Get(ids[i]), requests[i], options_);
}

TEST_F(EngineTest, StoppingCancelsEverybody) {
  EngineOptions options = SmallOptions();
  options.max_num_seqs = 2;
  StartGated(options);
  std::vector<SequenceId> ids;
  for (int i = 0; i < 5; ++i) ids.push_back(SubmitOne(engine_.get(), PromptOf(5, 100, i)));
  gate_.WaitForStep(1);
  ids.push_back(SubmitOne(engine_.get(), PromptOf(5, 100)));  // still in the inbox
  std::thread stopper([this] { engine_->Stop(); });
  while (engine_->Submit({}).ok()) std::this_thread::yield();  // until Stop has spoken; it now waits for the step
  gate_.Open();
  engine_->Stop();
  stopper.join();
  EXPECT_EQ(sink_.num_finished(), 6);
  for (SequenceId id : ids) EXPECT_EQ(sink_.Get(id).last.finish_reason, FinishReason::kCancelled);
  ExpectAtRest(engine_->Stats());
  const absl::Status status = Refusal(engine_.get(), PromptOf(5, 5));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ReasonOf(status), kReasonStopped);
  engine_->Cancel(ids[0]);
  engine_->Stop();
}

TEST_F(EngineTest, GoingAwayIsStopping) {
  Start(SmallOptions());
  for (int i = 0; i < 5; ++i) SubmitOne(engine_.get(), PromptOf(5, 200, i));
  engine_.reset();
  EXPECT_EQ(sink_.num_finished(), 5);
}

// ---- Faults ----

TEST_F(EngineTest, ADeviceFaultEndsAllAndRefusesLaterRequests) {
  int num_steps = 0;
  options_ = SmallOptions();
  options_.max_num_seqs = 2;
  engine_ = MakeEngine(options_, &sink_, clock_, [&](const StepPlan& plan) {
    gate_.Enter(plan);
    return ++num_steps < 3 ? absl::OkStatus() : absl::UnknownError("the wire is cut");
  });
  ::testing::internal::CaptureStderr();
  std::vector<SequenceId> ids;
  for (int i = 0; i < 5; ++i) ids.push_back(SubmitOne(engine_.get(), PromptOf(5, 100, i)));
  gate_.Open();
  sink_.WaitForFinished(5);
  const absl::Status refusal = Refusal(engine_.get(), PromptOf(5, 5));
  engine_->Stop();
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("the wire is cut"));
  EXPECT_EQ(log.find("the wire is cut"), log.rfind("the wire is cut")) << "logged twice";

  for (SequenceId id : ids) {
    EXPECT_EQ(sink_.Get(id).last.finish_reason, FinishReason::kError);
    EXPECT_EQ(sink_.Get(id).last.error.code(), absl::StatusCode::kInternal);
    EXPECT_EQ(ReasonOf(sink_.Get(id).last.error), kReasonDeviceFault);
  }
  EXPECT_EQ(refusal.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(ReasonOf(refusal), kReasonDeviceFault);
  EXPECT_THAT(std::string(refusal.message()), HasSubstr("the wire is cut"));
  EXPECT_EQ(engine_->Stats().fault, refusal);
  EXPECT_EQ(num_steps, 3) << "the device is not asked again";
  ExpectAtRest(engine_->Stats());
}

TEST_F(EngineTest, AFaultOfADeviceThatRunsAheadEndsEverybodyOnce) {
  for (const bool at_launch : {false, true}) {
    RecordingSink sink;
    options_ = SmallOptions();
    auto runner = std::make_unique<testing::HashRunner>(options_, /*launches_async=*/true);
    int num_calls = 0;
    const auto fail_at_last = [&] {
      return ++num_calls < 4 ? absl::OkStatus() : absl::UnknownError("the wire is cut");
    };
    if (at_launch) {
      runner->before_step = [&](const StepPlan& plan) {
        gate_.Enter(plan);
        return fail_at_last();
      };
    } else {
      runner->before_step = [&](const StepPlan& plan) {
        gate_.Enter(plan);
        return absl::OkStatus();
      };
      runner->before_take = fail_at_last;
    }
    const auto engine = MakeEngine(options_, std::move(runner), &sink, clock_);
    for (int i = 0; i < 5; ++i) SubmitOne(engine.get(), PromptOf(5, 100, i));
    gate_.Open();
    sink.WaitForFinished(5);
    for (SequenceId id = 1; id <= 5; ++id) EXPECT_EQ(ReasonOf(sink.Get(id).last.error), kReasonDeviceFault);
    EXPECT_EQ(ReasonOf(Refusal(engine.get(), PromptOf(5, 5))), kReasonDeviceFault);
    EXPECT_EQ(num_calls, 4) << "the device is not asked again";
    ExpectAtRest(engine->Stats());
  }
}

TEST_F(EngineTest, LaunchesTheNextStepBeforeTakingAResult) {
  options_ = SmallOptions();
  auto runner = std::make_unique<testing::HashRunner>(options_, /*launches_async=*/true);
  std::string calls;
  runner->before_step = [&](const StepPlan&) {
    calls += 'L';
    return absl::OkStatus();
  };
  runner->before_take = [&] {
    calls += 'T';
    return absl::OkStatus();
  };
  engine_ = MakeEngine(options_, std::move(runner), &sink_, clock_);
  const Request request = PromptOf(5, 4);
  const SequenceId id = SubmitOne(engine_.get(), request);
  sink_.WaitForFinished(1);
  engine_->Stop();
  EXPECT_EQ(calls, "LLTLTLTT");
  ExpectAsAlone(sink_.Get(id), request, options_);
}

TEST_F(EngineTest, LogitsWithoutAFiniteValueEndOneRequest) {
  Start(SmallOptions());
  Request bad = PromptOf(5, 12, 2);
  bad.sampling.seed = testing::kNonfiniteSeed;
  const Request good = PromptOf(5, 12, 1);
  const std::vector<SequenceId> ids = engine_->Submit({bad, good}).value();
  sink_.WaitForFinished(2);
  EXPECT_EQ(sink_.Get(ids[0]).last.finish_reason, FinishReason::kError);
  EXPECT_EQ(ReasonOf(sink_.Get(ids[0]).last.error), kReasonNonfiniteLogits);
  ExpectAsAlone(sink_.Get(ids[1]), good, options_);
  EXPECT_TRUE(engine_->Stats().fault.ok());
}

// ---- Stats ----

TEST_F(EngineTest, StatsShowWorkAtOnceAndProgressPerStep) {
  StartGated(SmallOptions());
  EXPECT_FALSE(engine_->Stats().busy);
  EXPECT_EQ(engine_->Stats().kv_blocks_free, options_.num_blocks);
  clock_.Set(2000);
  SubmitOne(engine_.get(), PromptOf(5, 3));
  EXPECT_TRUE(engine_->Stats().busy);
  EXPECT_EQ(engine_->Stats().last_progress_ns, 2000) << "a hang is measured from here";
  gate_.WaitForStep(1);
  clock_.Set(3000);
  SubmitOne(engine_.get(), PromptOf(5, 3));
  EXPECT_EQ(engine_->Stats().last_progress_ns, 2000) << "new work is no progress";
  gate_.LetOnePass();
  gate_.WaitForStep(2);
  EXPECT_EQ(engine_->Stats().last_progress_ns, 3000);
  EXPECT_EQ(engine_->Stats().num_steps, 1);
  EXPECT_EQ(engine_->Stats().num_prompt_tokens, 5);
  EXPECT_EQ(engine_->Stats().num_generation_tokens, 1);
  gate_.Open();
  sink_.WaitForFinished(2);
  EXPECT_FALSE(engine_->Stats().busy);
}

TEST_F(EngineTest, StatsAreUpToDateWhenTheSinkIsCalled) {
  std::vector<EngineStats> seen;  // by the sink; read once the engine has stopped
  sink_.on_step = [&] { seen.push_back(engine_->Stats()); };
  StartGated(SmallOptions());
  SubmitOne(engine_.get(), PromptOf(5, 2));
  gate_.WaitForStep(1);
  SubmitOne(engine_.get(), PromptOf(6, 1));  // still in the inbox when the first step ends
  gate_.Open();
  sink_.WaitForFinished(2);
  engine_->Stop();
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[0].num_generation_tokens, 1);
  EXPECT_EQ(seen[0].num_waiting, 1);
  EXPECT_EQ(seen[0].num_waiting_tokens, 6);
  EXPECT_EQ(seen[1].num_generation_tokens, 3) << "a request that has ended is counted before its end is told";
  ExpectAtRest(seen[1]);
}

TEST(TwoEnginesTest, LiveInOneProcess) {
  FakeClock clock;
  RecordingSink sink_a, sink_b;
  EngineOptions a = SmallOptions();
  EngineOptions b = SmallOptions();
  b.block_size = 16;
  b.num_blocks = 16;
  b.vocab_size = 5000;
  const auto engine_a = MakeEngine(a, &sink_a, clock);
  const auto engine_b = MakeEngine(b, &sink_b, clock);
  std::vector<Request> requests;
  for (int i = 0; i < 50; ++i) requests.push_back(PromptOf(3 + i, 30, i + 1));
  const std::vector<SequenceId> ids_a = engine_a->Submit(requests).value();
  const std::vector<SequenceId> ids_b = engine_b->Submit(requests).value();
  sink_a.WaitForFinished(50);
  sink_b.WaitForFinished(50);
  for (int i = 0; i < 50; ++i) {
    ExpectAsAlone(sink_a.Get(ids_a[i]), requests[i], a);
    ExpectAsAlone(sink_b.Get(ids_b[i]), requests[i], b);
  }
}

}  // namespace
}  // namespace sluice
