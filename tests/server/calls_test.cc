// Calls without a transport: what any of them may count on. Linked without gRPC.
#include "server/calls/calls.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "proto/answer.h"
#include "server/calls/served_model.h"
#include "tests/server/fake_model.h"
#include "tests/server/recording_reply.h"

namespace sluice {
namespace {

class CallsTest : public ::testing::Test {
 protected:
  ~CallsTest() override {
    fake_->Release();
    desk_.ingress.Stop();
    if (model_ != nullptr) model_->Stop();
  }

  void Serve() {
    auto model = ServedModel::Create(FakeHost(fake_), {"fake"}, 20, &calls_, &desk_.metrics, desk_.clock);
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
    desk_.model.store(model_.get());
    desk_.health.Advance(HealthState::Phase::kReady);
  }

  std::shared_ptr<RecordingReply> Begin(const std::string& request_id = "", Origin origin = {.peer = "a"}) {
    auto request = std::make_shared<v1::CompleteRequest>();
    request->set_prompt("abc");
    request->set_request_id(request_id);
    auto recorder = std::make_shared<RecordingReply>();
    calls_.Begin(std::shared_ptr<const v1::CompleteRequest>(std::move(request)), absl::OkStatus(), 100,
                 std::move(origin), recorder);
    return recorder;
  }

  static ServerOptions Options() {
    ServerOptions options;
    options.model.names = {"fake"};
    return options;
  }

  const std::shared_ptr<FakeModel> fake_ = std::make_shared<FakeModel>();
  FrontDesk desk_{Options(), {.models = {"fake"}, .version = "0"}, Clock::Real()};
  Calls calls_{&desk_};
  std::unique_ptr<ServedModel> model_;
};

TEST_F(CallsTest, ACompletionAndAChatBringTheirEvents) {
  Serve();
  const auto completion = Begin();
  EXPECT_TRUE(completion->Wait().ok());
  EXPECT_EQ(completion->answer().choices(0).text(), "hello");
  EXPECT_EQ(completion->answer().server_request_id(), completion->server_request_id);
  auto request = std::make_shared<v1::ChatRequest>();
  v1::ChatMessage* message = request->add_messages();
  message->set_role(v1::ROLE_USER);
  message->add_content()->set_text("hi");
  const auto chat = std::make_shared<RecordingReply>();
  calls_.Begin(std::shared_ptr<const v1::ChatRequest>(request), absl::OkStatus(), 100, {.peer = "a"}, chat);
  EXPECT_TRUE(chat->Wait().ok());
  EXPECT_EQ(chat->answer().choices(0).text(), "hello");
}

TEST_F(CallsTest, WithoutAModelOrARequestThereIsARefusal) {
  EXPECT_EQ(Begin()->Wait().code(), absl::StatusCode::kUnavailable);
  Serve();
  const auto unread = std::make_shared<RecordingReply>();
  calls_.Begin(std::make_shared<const v1::CompleteRequest>(), absl::InvalidArgumentError("cut"), 0, {.peer = "a"},
               unread);
  EXPECT_EQ(unread->Wait().message(), "cut");
  EXPECT_TRUE(calls_.All().empty());
}

TEST_F(CallsTest, TheIdIsTheCallersElseTheHeadersElseTheServers) {
  Serve();
  EXPECT_EQ(Begin("own", {.peer = "a", .header_request_id = "header"})->request_id, "own");
  EXPECT_EQ(Begin("", {.peer = "a", .header_request_id = "header"})->request_id, "header");
  const auto nameless = Begin("", {.peer = "a", .header_request_id = "no id"});
  EXPECT_EQ(nameless->request_id, nameless->server_request_id);
}

TEST_F(CallsTest, ACallIsCancelledByItsOwnIdFromItsPeerOnly) {
  Serve();
  fake_->Hold();
  const auto call = Begin("own");
  EXPECT_EQ(Begin("own")->Wait().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(calls_.Cancel("b", "own").code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(calls_.Cancel("a", "own").ok());
  fake_->Release();
  EXPECT_EQ(call->Wait().code(), absl::StatusCode::kCancelled);
}

TEST_F(CallsTest, ForAClientThatIsGoneNothingIsDone) {
  Serve();
  fake_->Hold();
  const auto left = Begin("own");
  const auto late = Begin("", {.peer = "a", .deadline_ns = desk_.clock.NowNs()});
  calls_.ClientGone(left->server_request_id, absl::CancelledError("left"));
  calls_.ClientGone(late->server_request_id, absl::CancelledError("left"));
  EXPECT_TRUE(calls_.All().empty());
  const auto again = Begin("own");
  fake_->Release();
  EXPECT_EQ(left->Wait().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(late->Wait().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(again->Wait().ok()) << "the id is free at once";
}

TEST_F(CallsTest, ItIsEmptyOnceRepliesAreOver) {
  Serve();
  const auto call = Begin();
  EXPECT_TRUE(call->Wait().ok());
  const auto empty = [this] { return calls_.WaitUntilEmpty(std::chrono::steady_clock::now(), [] { return false; }); };
  EXPECT_FALSE(empty());
  calls_.ReplyOver(call->server_request_id);
  EXPECT_TRUE(empty());
}

}  // namespace
}  // namespace sluice
