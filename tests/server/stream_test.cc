// Streams whose clients read slowly, not at all, or are frozen. Smaller than the load tests: one process, fakes.
#include <chrono>
#include <thread>

#include "tests/server/server_fixture.h"

namespace sluice {
namespace {

using namespace std::chrono_literals;

class StreamTest : public ServerTest {};

// Of 3,000 tokens, with all that can be said of them: 10 MiB.
void TakesAPromptInOneStep(ModelHost* host) {
  host->engine.max_model_len = 4096;
  host->engine.num_blocks = 512;
  host->engine.max_num_batched_tokens = 4096;
}
v1::StreamCompleteRequest LongPromptLogprobs() {
  v1::StreamCompleteRequest request = StreamPrompt(std::string(3000, 'x'), 2);
  request.mutable_options()->set_prompt_logprobs(-1);
  return request;
}

TEST_F(StreamTest, AClientThatDoesNotReadIsCutAndHoldsNothing) {
  Start(SmallBuffer());
  grpc::ClientContext context;
  const auto stub = v1::GenerationService::NewStub(NarrowChannel(server_->grpc_address()));
  const auto reader = stub->StreamComplete(&context, BigEvents());
  // Two hundred and fifty events are 1 MiB: the window and the buffer are full long before.
  WaitFor("the stream to be cut", [&] { return Metric("sluice_requests_total", "\"error\"") == 1; });
  WaitUntilIdle();
  EXPECT_GT(Metric("sluice_grpc_server_handled_total", "\"ABORTED\""), 0);
  v1::StreamCompleteResponse event;
  while (reader->Read(&event)) EXPECT_FALSE(event.event().has_completed());
  const grpc::Status status = reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::ABORTED) << status.error_message();
  EXPECT_EQ(DetailsOf(status).info.reason(), "SLOW_CONSUMER");
}

TEST_F(StreamTest, ASlowReaderGetsEverythingInFewerMessages) {
  ServerOptions options = SmallBuffer();
  options.limits.max_stream_buffer_bytes = 16 << 20;
  Start(options);
  grpc::ClientContext context;
  const auto stub = v1::GenerationService::NewStub(NarrowChannel(server_->grpc_address()));
  v1::StreamCompleteRequest request = BigEvents();
  request.mutable_options()->set_return_token_ids(true);
  const auto reader = stub->StreamComplete(&context, request);
  WaitFor("the generation to end", [&] { return Metric("sluice_requests_total", "\"length\"") == 1; });
  int num_deltas = 0, num_tokens = 0, num_logprobs = 0;
  bool completed = false;
  std::string text;
  v1::StreamCompleteResponse event;
  while (reader->Read(&event)) {
    if (event.event().has_completed()) completed = true;
    if (!event.event().has_delta()) continue;
    ++num_deltas;
    num_tokens += event.event().delta().token_ids_size();
    num_logprobs += event.event().delta().logprobs_size();
    text += event.event().delta().text();
    EXPECT_LT(event.ByteSizeLong(), 4u << 20);
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_TRUE(completed);
  EXPECT_EQ(num_tokens, 252);
  EXPECT_EQ(num_logprobs, 252);
  EXPECT_LT(num_deltas, 252);
  std::string expected;
  while (expected.size() < 252) expected += "hello";
  // The end tokens, one in six, have no text.
  EXPECT_EQ(text, expected.substr(0, 210));
  EXPECT_GT(Metric("sluice_stream_backpressure_seconds_count"), 0);
}

TEST_F(StreamTest, AStalledClientDoesNotDelayOthers) {
  Start(SmallBuffer());
  const auto stub = v1::GenerationService::NewStub(NarrowChannel(server_->grpc_address()));
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::StreamCompleteResponse>>> stuck;
  for (int i = 0; i < 4; ++i) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    stuck.push_back(stub->StreamComplete(contexts.back().get(), BigEvents()));
  }
  for (int i = 0; i < 20; ++i) EXPECT_EQ(CompleteOk(Prompt("abc")).choices(0).text(), "hello");
  for (auto& context : contexts) context->TryCancel();
  for (auto& reader : stuck) reader->Finish();
}

TEST_F(StreamTest, OneLargeStepDoesNotCutAReadingClient) {
  ServerOptions options = SmallBuffer();
  options.limits.max_logprobs = -1;
  Start(options, TakesAPromptInOneStep);
  // Ten events of 1 MiB at once; the client takes one now and then.
  grpc::ClientContext context;
  const auto stub = v1::GenerationService::NewStub(NarrowChannel(server_->grpc_address()));
  const auto reader = stub->StreamComplete(&context, LongPromptLogprobs());
  int num_entries = 0;
  v1::StreamCompleteResponse event;
  while (reader->Read(&event)) {
    num_entries += event.event().delta().prompt_logprobs_size();
    std::this_thread::sleep_for(50ms);
  }
  const grpc::Status status = reader->Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(num_entries, 3000);
}

TEST_F(StreamTest, LongPromptLogprobsComeInPortionsThatEveryClientTakes) {
  ServerOptions options = TestOptions();
  options.limits.max_logprobs = -1;
  Start(options, TakesAPromptInOneStep);
  const auto result = StreamComplete(LongPromptLogprobs());
  ASSERT_TRUE(result.status.ok()) << result.status.error_message();
  int num_entries = 0;
  size_t largest = 0;
  for (const auto& event : result.events) {
    largest = std::max(largest, event.ByteSizeLong());
    if (event.has_delta()) num_entries += event.delta().prompt_logprobs_size();
  }
  EXPECT_EQ(num_entries, 3000);
  EXPECT_LT(largest, 4u << 20);
}

}  // namespace
}  // namespace sluice
