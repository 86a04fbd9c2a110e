// However a call is given up, its sequences stop within a step and their blocks come back.
#include <chrono>
#include <thread>

#include "tests/server/server_fixture.h"

namespace sluice {
namespace {

using namespace std::chrono_literals;

class CancelTest : public ServerTest {
 protected:
  CancelTest() {
    Start();
    model_->SetStepTime(1ms);
  }

  // A stream that would go on to the end of the context.
  static v1::StreamCompleteRequest Endless(const std::string& request_id = "") {
    v1::StreamCompleteRequest request = StreamPrompt("abc");
    request.mutable_options()->set_ignore_eos(true);
    request.set_request_id(request_id);
    return request;
  }
};

TEST_F(CancelTest, ACancelledStreamStops) {
  grpc::ClientContext context;
  const auto stub = generation();
  const auto reader = stub->StreamComplete(&context, Endless());
  v1::StreamCompleteResponse event;
  ASSERT_TRUE(reader->Read(&event));
  context.TryCancel();
  EXPECT_EQ(reader->Finish().error_code(), grpc::CANCELLED);
  WaitUntilIdle();
  WaitFor("the call to be counted", [&] { return Metric("sluice_requests_total", "\"cancelled\"") == 1; });
}

TEST_F(CancelTest, ACancelledUnaryCallStops) {
  grpc::ClientContext context;
  v1::CompleteRequest request = Prompt("abc");
  request.mutable_options()->set_ignore_eos(true);
  model_->Hold();
  std::thread canceller([&] {
    model_->WaitUntilHeld();
    context.TryCancel();
  });
  v1::CompleteResponse response;
  EXPECT_EQ(generation()->Complete(&context, request, &response).error_code(), grpc::CANCELLED);
  canceller.join();
  model_->Release();
  WaitUntilIdle();
  EXPECT_LT(Metric("sluice_generation_tokens_total"), 10);
}

TEST_F(CancelTest, ALostConnectionStopsItsCalls) {
  {
    const auto channel = NewChannel(server_->grpc_address());
    const auto stub = v1::GenerationService::NewStub(channel);
    grpc::ClientContext context;
    auto reader = stub->StreamComplete(&context, Endless());
    v1::StreamCompleteResponse event;
    ASSERT_TRUE(reader->Read(&event));
    context.TryCancel();
    reader->Finish();
  }
  WaitUntilIdle();
}

TEST_F(CancelTest, ADeadlineWhileRunningStopsTheCall) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + 50ms);
  const auto result = StreamComplete(Endless(), &context);
  EXPECT_EQ(result.status.error_code(), grpc::DEADLINE_EXCEEDED);
  WaitUntilIdle();
  WaitFor("the call to be counted", [&] { return Metric("sluice_requests_total", "\"deadline\"") == 1; });
}

TEST_F(CancelTest, ADeadlineInTheQueueStopsTheCallBeforeItRuns) {
  model_->Hold();
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::StreamCompleteResponse>>> readers;
  const auto stub = generation();
  for (int i = 0; i < 9; ++i) {  // one more than run at a time
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    if (i == 8) contexts.back()->set_deadline(std::chrono::system_clock::now() + 100ms);
    v1::StreamCompleteRequest request = Endless();
    request.mutable_options()->set_seed(uint64_t(i));
    readers.push_back(stub->StreamComplete(contexts.back().get(), request));
    WaitFor("the call to arrive", [&] { return Load().running() + Load().waiting() == uint32_t(i + 1); });
  }
  EXPECT_EQ(readers.back()->Finish().error_code(), grpc::DEADLINE_EXCEEDED);
  model_->Release();
  for (int i = 0; i < 8; ++i) {
    v1::StreamCompleteResponse event;
    ASSERT_TRUE(readers[size_t(i)]->Read(&event));
    contexts[size_t(i)]->TryCancel();
  }
  WaitUntilIdle();
  for (const FakeModel::Seen& seen : model_->seen()) EXPECT_NE(seen.params.seed, 8u);
}

TEST_F(CancelTest, CancelRequestTakesTheCallersId) {
  std::thread canceller([&] { WaitFor("the call to be known", [&] { return Cancel("mine").ok(); }); });
  const auto result = StreamComplete(Endless("mine"));
  canceller.join();
  EXPECT_EQ(result.status.error_code(), grpc::CANCELLED);
  EXPECT_EQ(DetailsOf(result.status).info.reason(), "CANCELLED");
  WaitUntilIdle();
}

TEST_F(CancelTest, CancelRequestTakesTheServersIdAndReportsUsage) {
  grpc::ClientContext context;
  const auto stub = generation();
  const auto reader = stub->StreamComplete(&context, Endless("mine"));
  v1::StreamCompleteResponse event;
  ASSERT_TRUE(reader->Read(&event));
  ASSERT_TRUE(event.event().has_started());
  EXPECT_TRUE(Cancel(event.event().started().server_request_id()).ok());
  bool finished = false, completed = false;
  std::string text;
  while (reader->Read(&event)) {
    if (event.event().has_delta()) text += event.event().delta().text();
    if (event.event().has_choice_finished()) {
      finished = true;
      EXPECT_EQ(event.event().choice_finished().finish_reason(), v1::FINISH_REASON_CANCELLED);
    }
    if (event.event().has_completed()) {
      completed = true;
      EXPECT_GE(event.event().completed().usage().completion_tokens(), text.size());
    }
  }
  const grpc::Status status = reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::CANCELLED);
  EXPECT_TRUE(finished);
  EXPECT_TRUE(completed);
  EXPECT_NE(DetailsOf(status).info.metadata().at("completion_tokens"), "0");
}

TEST_F(CancelTest, CancelRequestEndsAUnaryCall) {
  v1::CompleteRequest request = Prompt("abc");
  request.mutable_options()->set_ignore_eos(true);
  request.set_request_id("unary");
  std::thread canceller([&] { WaitFor("the call to be known", [&] { return Cancel("unary").ok(); }); });
  EXPECT_EQ(Complete(request).error_code(), grpc::CANCELLED);
  canceller.join();
}

TEST_F(CancelTest, AnUnknownIdIsNotFoundAndNoIdIsInvalid) {
  grpc::Status status = Cancel("nobody");
  EXPECT_EQ(status.error_code(), grpc::NOT_FOUND);
  EXPECT_EQ(DetailsOf(status).info.reason(), "REQUEST_NOT_FOUND");
  status = Cancel("");
  EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT);
  EXPECT_EQ(DetailsOf(status).field(), "request_id");
}

TEST_F(CancelTest, AnIdBelongsToTheConnectionThatChoseIt) {
  const auto stranger = v1::GenerationService::NewStub(NewChannel(server_->grpc_address()));
  const auto cancel_as_stranger = [&](const std::string& id) {
    v1::CancelRequestRequest request;
    request.set_request_id(id);
    v1::CancelRequestResponse response;
    grpc::ClientContext context;
    return stranger->CancelRequest(&context, request, &response);
  };
  model_->SetStepTime(20ms);
  grpc::ClientContext context;
  const auto stub = generation();
  const auto reader = stub->StreamComplete(&context, Endless("chat-42"));
  v1::StreamCompleteResponse event;
  ASSERT_TRUE(reader->Read(&event));
  const std::string server_id = event.event().started().server_request_id();
  // Who guesses it can neither stop the call nor learn that it is there, nor keep its owner from using it.
  const grpc::Status guessed = cancel_as_stranger("chat-42");
  EXPECT_EQ(guessed.error_code(), grpc::NOT_FOUND);
  EXPECT_EQ(DetailsOf(guessed).info.reason(), "REQUEST_NOT_FOUND");
  grpc::ClientContext other_context;
  const auto other = stranger->StreamComplete(&other_context, Endless("chat-42"));
  v1::StreamCompleteResponse other_event;
  ASSERT_TRUE(other->Read(&other_event));
  const std::string other_id = other_event.event().started().server_request_id();
  EXPECT_TRUE(Cancel("chat-42").ok());
  while (reader->Read(&event)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::CANCELLED);
  ASSERT_TRUE(other->Read(&other_event)) << "the call of the other connection goes on";
  EXPECT_EQ(Cancel("chat-42").error_code(), grpc::NOT_FOUND);
  // The server's own id cancels from anywhere.
  EXPECT_TRUE(Cancel(other_id).ok());
  while (other->Read(&other_event)) {
  }
  EXPECT_EQ(other->Finish().error_code(), grpc::CANCELLED);
  EXPECT_EQ(cancel_as_stranger(server_id).error_code(), grpc::NOT_FOUND);
  WaitUntilIdle();
}

TEST_F(CancelTest, AnIdFromTheHeaderCancelsNothing) {
  grpc::ClientContext context;
  context.AddMetadata("x-request-id", "header");
  const auto stub = generation();
  const auto reader = stub->StreamComplete(&context, Endless());
  v1::StreamCompleteResponse event;
  ASSERT_TRUE(reader->Read(&event));
  EXPECT_EQ(Cancel("header").error_code(), grpc::NOT_FOUND);
  context.TryCancel();
  reader->Finish();
}

TEST_F(CancelTest, AnIdInUseIsRefusedAndFreeAgainAfterwards) {
  grpc::ClientContext context;
  const auto stub = generation();
  const auto reader = stub->StreamComplete(&context, Endless("twice"));
  v1::StreamCompleteResponse event;
  ASSERT_TRUE(reader->Read(&event));
  v1::CompleteRequest request = Prompt("abc");
  request.set_request_id("twice");
  const grpc::Status status = Complete(request);
  EXPECT_EQ(status.error_code(), grpc::ALREADY_EXISTS);
  EXPECT_EQ(DetailsOf(status).info.reason(), "REQUEST_ID_IN_USE");
  // The refusal did not give the id away.
  EXPECT_EQ(Complete(request).error_code(), grpc::ALREADY_EXISTS);
  EXPECT_TRUE(Cancel("twice").ok());
  while (reader->Read(&event)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::CANCELLED);
  // Whoever has seen the end can use the id at once.
  EXPECT_TRUE(Complete(request).ok());
  EXPECT_TRUE(Complete(request).ok());
}

TEST_F(CancelTest, GaugesAreRightAtOnceAfterAStormOfCancels) {
  const auto stub = generation();
  for (int round = 0; round < 4; ++round) {
    std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
    std::vector<std::unique_ptr<grpc::ClientReader<v1::StreamCompleteResponse>>> readers;
    for (int i = 0; i < 30; ++i) {
      contexts.push_back(std::make_unique<grpc::ClientContext>());
      readers.push_back(stub->StreamComplete(contexts.back().get(), Endless()));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(round * 7));
    for (auto& context : contexts) context->TryCancel();
    for (auto& reader : readers) reader->Finish();
  }
  WaitUntilIdle();
  EXPECT_EQ(Metric("sluice_requests_running"), 0);
  EXPECT_EQ(Metric("sluice_requests_waiting"), 0);
  EXPECT_EQ(Metric("sluice_kv_cache_usage_ratio"), 0);
  EXPECT_EQ(Metric("sluice_kv_blocks", "\"free\"") + Metric("sluice_kv_blocks", "\"cached\""),
            Metric("sluice_kv_blocks_capacity"));
}

TEST_F(CancelTest, EveryCallIsCountedOnce) {
  const auto stub = generation();
  for (int i = 0; i < 20; ++i) {
    grpc::ClientContext context;
    const auto reader = stub->StreamComplete(&context, Endless());
    v1::StreamCompleteResponse event;
    ASSERT_TRUE(reader->Read(&event));
    context.TryCancel();
    reader->Finish();
  }
  for (int i = 0; i < 5; ++i) Complete(Prompt("abc"));
  WaitFor("all calls to be counted", [&] {
    double sum = 0;
    for (const char* outcome : {"stop", "length", "cancelled", "deadline", "rejected", "invalid", "error"}) {
      sum += Metric("sluice_requests_total", "\"" + std::string(outcome) + "\"");
    }
    return sum == 25;
  });
  EXPECT_EQ(Metric("sluice_requests_total", "\"cancelled\""), 20);
  EXPECT_EQ(Metric("sluice_e2e_latency_seconds_count"), 25);
}

}  // namespace
}  // namespace sluice
