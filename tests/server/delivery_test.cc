// What waits between the engine and the delivery thread is bounded, and who pays when it is full.
#include "server/calls/delivery.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/base/mutex.h"
#include "proto/answer.h"
#include "server/calls/calls.h"
#include "server/calls/status.h"
#include "tests/server/fake_model.h"
#include "tests/server/recording_reply.h"

namespace sluice {
namespace {

// Its delivery thread stands in the first event until it is let go.
class HeldReply final : public RecordingReply {
 public:
  explicit HeldReply(bool held) : held_(held) {}
  void Send(AnswerEvent event) override {
    {
      MutexLock lock(&mutex_);
      inside_ = true;
      changed_.NotifyAll();
      while (held_) changed_.Wait(&mutex_);
    }
    RecordingReply::Send(std::move(event));
  }

  void WaitUntilInside() {
    MutexLock lock(&mutex_);
    while (!inside_) changed_.Wait(&mutex_);
  }
  void LetGo() {
    MutexLock lock(&mutex_);
    held_ = false;
    changed_.NotifyAll();
  }
  std::string text() const {
    const Answer answer = this->answer();
    return answer.choices_size() == 0 ? "" : answer.choices(0).text();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool held_ ABSL_GUARDED_BY(mutex_);
  bool inside_ ABSL_GUARDED_BY(mutex_) = false;
};

constexpr int64_t kRoom = 20'000;

// The engine stands in its first step: the test speaks for it.
class DeliveryTest : public ::testing::Test {
 protected:
  DeliveryTest() {
    fake_->Hold();
    ModelHost host = FakeHost(fake_);
    tokenizer_ = host.tokenizer;
    auto engine = Engine::Create(host.engine, std::move(host.runner), &delivery_, Clock::Real());
    EXPECT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
    first_ = Begin(first_reply_);
    Say(first_, "a");
    first_reply_->WaitUntilInside();
  }
  ~DeliveryTest() override {
    first_reply_->LetGo();
    fake_->Release();
    engine_->Stop();
    delivery_.Stop();
  }

  std::shared_ptr<Call> Begin(std::shared_ptr<ReplySink> reply) {
    auto call = std::make_shared<Call>(v1::Started(), Origin(), "", "", std::move(reply));
    Generation generation;
    generation.prompt_tokens = {kStart};
    generation.sampling.max_tokens = 200;
    EXPECT_TRUE(call->Submit(std::move(generation), engine_.get(), tokenizer_.get(), &desk_.metrics).ok());
    return call;
  }

  static SequenceOutput Output(const std::shared_ptr<Call>& call, const std::string& text, size_t num_logprobs) {
    // Kept by the call, as a choice of its own would be.
    auto* const choice = new Call::Choice{call.get(), 0};
    SequenceOutput output;
    output.id = 12345;
    output.context = std::shared_ptr<Call::Choice>(choice, [call](Call::Choice* c) { delete c; });
    for (char c : text) output.tokens.push_back(uint8_t(c));
    if (num_logprobs > 0) output.logprobs.resize(output.tokens.size());
    for (TokenLogprobs& entry : output.logprobs) entry.top.resize(num_logprobs);
    return output;
  }
  void Say(const std::shared_ptr<Call>& call, const std::string& text, size_t num_logprobs = 0,
           FinishReason end = FinishReason::kNone) {
    std::vector<SequenceOutput> outputs;
    outputs.push_back(Output(call, text, num_logprobs));
    outputs.back().finish_reason = end;
    delivery_.OnStep({.num_sequences = 1}, std::move(outputs));
  }

  const std::shared_ptr<FakeModel> fake_ = std::make_shared<FakeModel>();
  FrontDesk desk_{ServerOptions(), {.models = {"fake"}, .version = "0"}, Clock::Real()};
  Calls calls_{&desk_};
  Delivery delivery_{"fake", &calls_, &desk_.metrics, Clock::Real(), kRoom};
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::unique_ptr<Engine> engine_;
  // Delivery stands in its first event.
  const std::shared_ptr<HeldReply> first_reply_ = std::make_shared<HeldReply>(true);
  std::shared_ptr<Call> first_;
};

TEST_F(DeliveryTest, LogProbabilitiesMayTakeHalfOfTheRoomAndOtherCallsGoOn) {
  const auto greedy_reply = std::make_shared<HeldReply>(false), plain_reply = std::make_shared<HeldReply>(false);
  const auto greedy = Begin(greedy_reply), plain = Begin(plain_reply);
  Say(greedy, "x", 1000);  // 8,000 bytes
  EXPECT_TRUE(greedy->stop_status().ok());
  Say(plain, "p");
  Say(greedy, "y", 1000);
  ASSERT_EQ(ReasonOf(greedy->stop_status()), kReasonOutputOverflow) << "at once, though delivery stands";
  Say(greedy, "z", 1);
  Say(plain, "q");
  EXPECT_LE(delivery_.queued_bytes(), kRoom);
  Say(plain, "r", 0, FinishReason::kLength);
  first_reply_->LetGo();
  EXPECT_TRUE(plain_reply->Wait().ok());
  EXPECT_EQ(plain_reply->text(), "pqr");
  const absl::Status status = greedy_reply->Wait();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(status), kReasonOutputOverflow);
  EXPECT_EQ(greedy_reply->text(), "x") << "nothing follows a gap";
}

TEST_F(DeliveryTest, NothingGrowsOverTheRoomHoweverLongDeliveryStands) {
  std::vector<std::shared_ptr<HeldReply>> replies;
  std::vector<std::shared_ptr<Call>> calls;
  for (int i = 0; i < 4; ++i) calls.push_back(Begin(replies.emplace_back(std::make_shared<HeldReply>(false))));
  for (int step = 0; step < 1000; ++step) {
    for (const auto& call : calls) {
      if (call->stop_status().ok()) Say(call, "t");
    }
    ASSERT_LE(delivery_.queued_bytes(), kRoom);
  }
  first_reply_->LetGo();
  for (const auto& reply : replies) {
    EXPECT_EQ(ReasonOf(reply->Wait()), kReasonOutputOverflow);
    EXPECT_GT(reply->text().size(), 10u);
  }
}

TEST_F(DeliveryTest, AStepThatFindsTheQueueEmptyIsTakenWhole) {
  const auto reply = std::make_shared<HeldReply>(false);
  const auto call = Begin(reply);
  Say(call, "x", 100'000, FinishReason::kLength);
  EXPECT_GT(delivery_.queued_bytes(), 800'000);
  first_reply_->LetGo();
  EXPECT_TRUE(reply->Wait().ok());
  EXPECT_EQ(reply->text(), "x");
  EXPECT_EQ(delivery_.queued_bytes(), 0);
}

}  // namespace
}  // namespace sluice
