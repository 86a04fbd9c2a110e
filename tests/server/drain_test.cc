// The end of a server's life: nothing new, nothing lost that can be finished, nothing left behind.
#include <atomic>
#include <chrono>
#include <thread>

#include "engine/base/log.h"
#include "engine/base/mutex.h"
#include "tests/server/server_fixture.h"

namespace sluice {
namespace {

using namespace std::chrono_literals;

class DrainTest : public ServerTest {
 protected:
  bool Ready() const {
    int status = 0;
    Http("/health", &status);
    return status == 200;
  }
  static bool Never() { return false; }
};

TEST_F(DrainTest, BeforeTheModelIsThereCallsAreUnavailable) {
  auto server = Server::Start(TestOptions());
  ASSERT_TRUE(server.ok());
  server_ = *std::move(server);
  channel_ = NewChannel(server_->grpc_address());
  const grpc::Status status = Complete(Prompt("abc"));
  EXPECT_EQ(status.error_code(), grpc::UNAVAILABLE);
  const ErrorDetails details = DetailsOf(status);
  EXPECT_EQ(details.info.reason(), "LOADING");
  EXPECT_TRUE(details.has_retry);
  EXPECT_FALSE(Ready());
  int live = 0;
  Http("/health/live", &live);
  EXPECT_EQ(live, 200);
  ASSERT_TRUE(server_->Serve(FakeHost(model_)).ok());
  EXPECT_TRUE(Ready());
  EXPECT_TRUE(Complete(Prompt("abc")).ok());
}

TEST_F(DrainTest, WhileLeavingCallsAreStillTaken) {
  Start();
  server_->BeginLeaving();
  EXPECT_FALSE(Ready());
  EXPECT_TRUE(Complete(Prompt("abc")).ok());
}

TEST_F(DrainTest, RunningStreamsFinishAndNewCallsAreRefused) {
  Start();
  model_->SetStepTime(2ms);
  std::vector<std::thread> clients;
  std::atomic<int> succeeded = 0;
  for (int i = 0; i < 8; ++i) {
    clients.emplace_back([&] {
      v1::StreamCompleteRequest request = StreamPrompt("abc", 60);
      request.mutable_options()->set_ignore_eos(true);
      const auto result = StreamComplete(request);
      if (result.status.ok() && result.events.back().completed().usage().completion_tokens() == 60) ++succeeded;
    });
  }
  WaitFor("all streams to run", [&] { return Load().running() == 8; });
  server_->BeginDrain();
  EXPECT_FALSE(Ready());
  const grpc::Status status = Complete(Prompt("abc"));
  EXPECT_EQ(status.error_code(), grpc::UNAVAILABLE);
  EXPECT_EQ(DetailsOf(status).info.reason(), "DRAINING");
  EXPECT_TRUE(DetailsOf(status).has_retry);
  EXPECT_EQ(Metric("sluice_draining"), 1);
  EXPECT_TRUE(server_->WaitForCalls(10s, Never));
  server_->Stop();
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(succeeded, 8);
}

TEST_F(DrainTest, AStreamIsOverWhenItsClientHasReadIt) {
  ServerOptions options = SmallBuffer();
  options.limits.max_stream_buffer_bytes = 16 << 20;
  Start(options);
  grpc::ClientContext context;
  const auto stub = v1::GenerationService::NewStub(NarrowChannel(server_->grpc_address()));
  const auto reader = stub->StreamComplete(&context, BigEvents());
  WaitFor("the generation to end", [&] { return Metric("sluice_requests_total", "\"length\"") == 1; });
  server_->BeginDrain();
  EXPECT_FALSE(server_->WaitForCalls(0ms, Never));  // after more time than Stop has for those that never read
  std::thread client([&] {
    std::this_thread::sleep_for(100ms);
    bool completed = false;
    v1::StreamCompleteResponse event;
    while (reader->Read(&event)) completed = event.event().has_completed();
    EXPECT_TRUE(completed);
    EXPECT_TRUE(reader->Finish().ok());
  });
  EXPECT_TRUE(server_->WaitForCalls(20s, Never));
  server_->Stop();
  client.join();
}

TEST_F(DrainTest, ACutStreamThatIsNotReadHoldsNothingUp) {
  Start(SmallBuffer());
  grpc::ClientContext context;
  const auto stub = v1::GenerationService::NewStub(NarrowChannel(server_->grpc_address()));
  const auto reader = stub->StreamComplete(&context, BigEvents());
  WaitFor("the stream to be cut", [&] { return Metric("sluice_requests_total", "\"error\"") == 1; });
  server_->BeginDrain();
  EXPECT_TRUE(server_->WaitForCalls(20s, Never));
  context.TryCancel();
  reader->Finish();
}

TEST_F(DrainTest, CallsThatWaitAreSentAwayAtOnce) {
  Start();
  model_->Hold();
  std::vector<std::thread> clients;
  std::atomic<int> unavailable = 0, finished = 0;
  for (int i = 0; i < 12; ++i) {
    clients.emplace_back([&] {
      const auto result = StreamComplete(StreamPrompt("abc"));
      if (result.status.ok()) ++finished;
      if (result.status.error_code() == grpc::UNAVAILABLE && result.events.empty()) ++unavailable;
    });
  }
  WaitFor("the batch and a queue", [&] { return Load().running() + Load().waiting() == 12; });
  model_->WaitUntilHeld();
  server_->BeginDrain();
  model_->Release();
  EXPECT_TRUE(server_->WaitForCalls(10s, Never));
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(finished + unavailable, 12);
  EXPECT_GE(unavailable, 4);
}

TEST_F(DrainTest, ACallWhoseFirstChoiceRunsGetsItsOthersToo) {
  Start(TestOptions(), [](ModelHost* host) { host->engine.max_num_seqs = 1; });
  model_->Hold();
  std::thread client([&] {
    v1::CompleteRequest request = Prompt("abc");
    request.mutable_options()->set_n(2);
    const v1::Generated response = CompleteOk(request);
    ASSERT_EQ(response.choices_size(), 2);
    for (const v1::Choice& choice : response.choices()) EXPECT_EQ(choice.text(), "hello");
  });
  model_->WaitUntilHeld();
  server_->BeginDrain();
  model_->Release();
  EXPECT_TRUE(server_->WaitForCalls(10s, Never));
  client.join();
}

TEST_F(DrainTest, WhatTakesTooLongIsCutWithItsUsage) {
  Start();
  model_->SetStepTime(5ms);
  v1::StreamCompleteRequest request = StreamPrompt("abc");
  request.mutable_options()->set_ignore_eos(true);
  std::thread client([&] {
    const auto result = StreamComplete(request);
    EXPECT_EQ(result.status.error_code(), grpc::UNAVAILABLE);
    ASSERT_FALSE(result.events.empty());
    EXPECT_TRUE(result.events.back().has_completed());
    EXPECT_GT(result.events.back().completed().usage().completion_tokens(), 0u);
    EXPECT_NE(DetailsOf(result.status).info.metadata().at("completion_tokens"), "0");
  });
  WaitFor("the stream to speak", [&] { return Metric("sluice_time_to_first_token_seconds_count") == 1; });
  server_->BeginDrain();
  EXPECT_FALSE(server_->WaitForCalls(20ms, Never));
  client.join();
  EXPECT_EQ(Metric("sluice_requests_total", "\"error\""), 1);
  EXPECT_EQ(Metric("sluice_requests_total", "\"rejected\""), 0);
}

TEST_F(DrainTest, AWatchEndsWhenTheServerStops) {
  Start();
  grpc::ClientContext context;
  const auto stub = health();
  const auto reader = stub->Watch(&context, {});
  grpc::health::v1::HealthCheckResponse response;
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.status(), grpc::health::v1::HealthCheckResponse::SERVING);
  std::thread stopper([&] { server_->Stop(); });
  while (reader->Read(&response)) EXPECT_EQ(response.status(), grpc::health::v1::HealthCheckResponse::NOT_SERVING);
  EXPECT_EQ(reader->Finish().error_code(), grpc::UNAVAILABLE);
  stopper.join();
}

// Keeps the lines of the log.
class KeptLog final : public LogSink {
 public:
  KeptLog() { SetLogSink(this); }
  ~KeptLog() override { SetLogSink(nullptr); }
  void Write(absl::string_view line) override {
    MutexLock lock(&mutex_);
    text_ += std::string(line);
  }
  void Flush() override {}
  std::string text() const {
    MutexLock lock(&mutex_);
    return text_;
  }

 private:
  mutable Mutex mutex_;
  std::string text_ ABSL_GUARDED_BY(mutex_);
};

TEST_F(DrainTest, AdminDrainLeavesALineInTheLog) {
  Start();
  const KeptLog log;
  v1::DrainResponse response;
  grpc::ClientContext first, second;
  ASSERT_TRUE(admin()->Drain(&first, {}, &response).ok());
  EXPECT_NE(log.text().find("INFO AdminService.Drain: draining, new calls are refused; sequences that still run: 0\n"),
            std::string::npos)
      << log.text();
  ASSERT_TRUE(admin()->Drain(&second, {}, &response).ok());
  EXPECT_NE(log.text().find("AdminService.Drain: draining already"), std::string::npos) << log.text();
}

TEST_F(DrainTest, TheLoadTellsTheState) {
  Start();
  EXPECT_EQ(Load().state(), v1::MODEL_STATE_READY);
  server_->BeginLeaving();
  EXPECT_EQ(Load().state(), v1::MODEL_STATE_READY) << "calls are still answered";
  server_->BeginDrain();
  EXPECT_EQ(Load().state(), v1::MODEL_STATE_DRAINING);
}

TEST_F(DrainTest, AdminDrainRefusesNewCallsAndKeepsTheServer) {
  Start();
  v1::DrainResponse response;
  grpc::ClientContext context;
  ASSERT_TRUE(admin()->Drain(&context, {}, &response).ok());
  EXPECT_EQ(Complete(Prompt("abc")).error_code(), grpc::UNAVAILABLE);
  EXPECT_TRUE(Load().draining());
  grpc::ClientContext again;
  EXPECT_TRUE(admin()->Drain(&again, {}, &response).ok());
}

}  // namespace
}  // namespace sluice
