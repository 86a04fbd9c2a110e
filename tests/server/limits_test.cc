// More than the server can take is refused at once, with a hint when to come back.
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <chrono>
#include <thread>

#include "tests/sanitized.h"
#include "tests/server/server_fixture.h"

namespace sluice {
namespace {

class LimitsTest : public ServerTest {
 protected:
  // Waits until `count` calls are in the engine's hands.
  void Submit(int count, const v1::StreamCompleteRequest& request) {
    if (stub_ == nullptr) stub_ = generation();
    for (int i = 0; i < count; ++i) {
      contexts_.push_back(std::make_unique<grpc::ClientContext>());
      readers_.push_back(stub_->StreamComplete(contexts_.back().get(), request));
      const size_t expected = readers_.size();
      WaitFor("the call to arrive", [&] { return Load().running() + Load().waiting() == expected; });
    }
  }
  ~LimitsTest() override {
    model_->Release();
    for (auto& context : contexts_) context->TryCancel();
    for (auto& reader : readers_) reader->Finish();
  }

  std::unique_ptr<v1::GenerationService::Stub> stub_;
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts_;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::StreamCompleteResponse>>> readers_;
};

TEST_F(LimitsTest, AFullQueueRefusesWithAHintWhenToRetry) {
  Start(TestOptions(), [](ModelHost* host) { host->engine.max_queued_requests = 3; });
  model_->Hold();
  Submit(1, StreamPrompt("abc"));
  model_->WaitUntilHeld();
  Submit(3, StreamPrompt("abc"));
  grpc::ClientContext context;
  v1::CompleteResponse response;
  const grpc::Status status = generation()->Complete(&context, Prompt("abc"), &response);
  EXPECT_EQ(status.error_code(), grpc::RESOURCE_EXHAUSTED);
  const ErrorDetails details = DetailsOf(status);
  EXPECT_EQ(details.info.reason(), "QUEUE_FULL");
  ASSERT_TRUE(details.has_retry);
  EXPECT_GT(details.retry.retry_delay().seconds(), 0);
  EXPECT_EQ(context.GetServerTrailingMetadata().count("grpc-retry-pushback-ms"), 1u);
  EXPECT_EQ(Metric("sluice_requests_total", "\"rejected\""), 1);
  EXPECT_EQ(Metric("sluice_requests_waiting"), 3);
}

TEST_F(LimitsTest, WaitingTokensAreLimitedToo) {
  Start(TestOptions(), [](ModelHost* host) { host->engine.max_queued_tokens = 100; });
  model_->Hold();
  Submit(1, StreamPrompt("abc"));
  model_->WaitUntilHeld();
  Submit(1, StreamPrompt(std::string(79, 'x')));
  EXPECT_EQ(Complete(Prompt(std::string(79, 'x'))).error_code(), grpc::RESOURCE_EXHAUSTED);
  Submit(1, StreamPrompt("abc"));
  EXPECT_EQ(Load().waiting_tokens(), 84u);
}

TEST_F(LimitsTest, ChoicesAreTakenTogetherOrNotAtAll) {
  Start(TestOptions(), [](ModelHost* host) { host->engine.max_queued_requests = 3; });
  model_->Hold();
  Submit(1, StreamPrompt("abc"));
  model_->WaitUntilHeld();
  Submit(1, StreamPrompt("abc"));
  v1::CompleteRequest request = Prompt("abc");
  request.mutable_options()->set_n(3);
  EXPECT_EQ(Complete(request).error_code(), grpc::RESOURCE_EXHAUSTED);
  EXPECT_EQ(Load().waiting(), 1u);
}

TEST_F(LimitsTest, AnEmptyQueueTakesMoreChoicesThanMayWait) {
  Start(TestOptions(), [](ModelHost* host) { host->engine.max_queued_requests = 3; });
  v1::CompleteRequest request = Prompt("abc");
  request.mutable_options()->set_n(16);
  EXPECT_EQ(CompleteOk(request).choices_size(), 16);
}

TEST_F(LimitsTest, APromptThatCanNeverFitThePoolIsInvalid) {
  Start(TestOptions(), [](ModelHost* host) { host->engine.num_blocks = 4; });
  const grpc::Status status = Complete(Prompt("abc", 100));
  EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT);
  EXPECT_EQ(DetailsOf(status).info.reason(), "KV_CAPACITY_EXCEEDED");
  EXPECT_EQ(DetailsOf(status).field(), "options.max_tokens");
  const ErrorDetails too_long = DetailsOf(Complete(Prompt(std::string(64, 'x'))));
  EXPECT_EQ(too_long.info.reason(), "KV_CAPACITY_EXCEEDED");
  EXPECT_EQ(too_long.field(), "prompt");
  // The four blocks hold sixty-four tokens; the keys and values of the last one are never needed.
  EXPECT_EQ(CompleteOk(Prompt(std::string(63, 'x'))).usage().completion_tokens(), 1u);
  EXPECT_TRUE(Complete(Prompt("abc", 61)).ok());
  EXPECT_FALSE(Complete(Prompt("abc", 62)).ok());
}

TEST_F(LimitsTest, StopTokensMustLeaveSomethingToDraw) {
  Start(TestOptions(), [](ModelHost* host) {
    for (int32_t id = 64; id < kFakeVocabSize; ++id) host->engine.eos_token_ids.push_back(id);
  });
  v1::CompleteRequest request = Prompt("abc", 8);
  request.mutable_options()->set_min_tokens(1);
  for (uint32_t id = 0; id < 64; ++id) request.mutable_options()->add_stop_token_ids(id);
  const grpc::Status status = Complete(request);
  EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT);
  EXPECT_EQ(DetailsOf(status).field(), "options.stop_token_ids");
}

TEST_F(LimitsTest, ARequestOverTheLimitIsToldTheFlag) {
  ServerOptions options = TestOptions();
  options.limits.max_request_bytes = 1 << 16;
  Start(options);
  const grpc::Status status = Complete(Prompt(std::string(1 << 17, 'x')));
  EXPECT_EQ(status.error_code(), grpc::RESOURCE_EXHAUSTED);
  EXPECT_EQ(DetailsOf(status).info.reason(), "REQUEST_TOO_LARGE");
  EXPECT_FALSE(DetailsOf(status).has_retry) << "it would be too large again";
  EXPECT_NE(status.error_message().find("--max-request-bytes 65536"), std::string::npos) << status.error_message();
  EXPECT_EQ(Complete(Prompt(std::string(1 << 15, 'x'))).error_code(), grpc::INVALID_ARGUMENT);
  // As the README has it: one that gRPC refuses has its words.
  const grpc::Status huge = Complete(Prompt(std::string((1 << 18) + 1, 'x')));
  EXPECT_EQ(huge.error_code(), grpc::RESOURCE_EXHAUSTED);
  EXPECT_NE(huge.error_message().find("Received message larger than max"), std::string::npos) << huge.error_message();
}

TEST_F(LimitsTest, AUnaryAnswerThatGrowsTooLargeIsCut) {
  ServerOptions options = TestOptions();
  options.limits.max_connection_buffer_bytes = 4 << 10;
  Start(options);
  model_->SetStepTime(std::chrono::milliseconds(1));
  v1::CompleteRequest request = Prompt("abc", 200);
  request.mutable_options()->set_ignore_eos(true);
  request.mutable_options()->set_logprobs(20);  // some 300 bytes per token
  grpc::ClientContext context;
  v1::CompleteResponse response;
  const grpc::Status status = generation()->Complete(&context, request, &response);
  EXPECT_EQ(status.error_code(), grpc::RESOURCE_EXHAUSTED);
  const ErrorDetails details = DetailsOf(status);
  EXPECT_EQ(details.info.reason(), "ANSWER_TOO_LARGE");
  EXPECT_FALSE(details.has_retry) << "it would be too large again";
  EXPECT_EQ(context.GetServerTrailingMetadata().count("grpc-retry-pushback-ms"), 0u);
  WaitUntilIdle();
  EXPECT_LT(Metric("sluice_generation_tokens_total"), 100);
  WaitFor("the call to be counted", [&] { return Metric("sluice_requests_total", "\"error\"") == 1; });
  request.mutable_options()->set_max_tokens(5);
  EXPECT_TRUE(Complete(request).ok());
}

TEST_F(LimitsTest, AlmostFourMebibytesArriveByDefault) {
  Start();
  v1::TokenizeRequest request;
  request.set_text(std::string((4 << 20) - 100, 'x'));
  v1::TokenizeResponse response;
  grpc::ClientContext context;
  const grpc::Status status = tokenizer()->Tokenize(&context, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.token_ids_size(), (4 << 20) - 99);
}

TEST_F(LimitsTest, ATextWhoseTokensNobodyCanCountBeforehandIsBounded) {
  ServerOptions options = TestOptions();
  options.limits.max_request_bytes = 16 << 20;
  Start(options, [](ModelHost* host) { host->tokenizer = FakeTokenizer(/*every_byte=*/false); });
  const grpc::Status status = Complete(Prompt(std::string((8 << 20) + 1, 'x')));
  EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT);
  EXPECT_EQ(DetailsOf(status).field(), "prompt");
  EXPECT_NE(status.error_message().find("found 8388609 bytes, expected at most 8388608"), std::string::npos)
      << status.error_message();
  EXPECT_EQ(CompleteOk(Prompt("abc")).choices(0).text(), "hello");
}

TEST_F(LimitsTest, TokenizingDelaysNoGenerationAndEndsWithItsClient) {
  Start();
  constexpr int kNumTexts = 6;
  constexpr size_t kTextBytes = kSanitized ? 1 << 20 : 3 << 20;
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::thread> clients;
  // The channel takes no answer of that size: the work is the server's alone.
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(1 << 16);
  const auto stub = v1::TokenizerService::NewStub(
      grpc::CreateCustomChannel(server_->grpc_address(), grpc::InsecureChannelCredentials(), arguments));
  for (int i = 0; i < kNumTexts; ++i) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    clients.emplace_back([&stub, context = contexts.back().get()] {
      v1::TokenizeRequest request;
      request.set_text(std::string(kTextBytes, 'x'));
      v1::TokenizeResponse response;
      EXPECT_FALSE(stub->Tokenize(context, request, &response).ok());
    });
  }
  const auto handled = [this](const std::string& code) {
    return Metric("sluice_grpc_server_handled_total", "\"" + code + "\"");
  };
  // They share a connection and arrive side by side: once one is done, the others wait.
  WaitFor("the first text to be done", [&] { return handled("OK") >= 1; });
  EXPECT_EQ(CompleteOk(Prompt("abc")).choices(0).text(), "hello");
  EXPECT_LT(handled("OK"), kNumTexts - 1);
  for (auto& context : contexts) context->TryCancel();
  for (std::thread& client : clients) client.join();
  WaitFor("the rest to be skipped", [&] { return handled("CANCELLED") > 0; });
}

TEST_F(LimitsTest, ASecondServerOnTheSamePortsDoesNotStart) {
  Start();
  ServerOptions options = TestOptions();
  const std::string grpc = server_->grpc_address(), http = server_->http_address(), admin = server_->admin_address();
  const auto port = [](const std::string& address) { return std::stoi(address.substr(address.rfind(':') + 1)); };
  options.network.grpc_port = port(grpc);
  absl::Status status = Server::Start(options).status();
  EXPECT_NE(status.message().find("--grpc-port"), std::string::npos) << status;
  options.network.grpc_port = 0;
  options.network.http_port = port(http);
  status = Server::Start(options).status();
  EXPECT_NE(status.message().find("--http-port"), std::string::npos) << status;
  options.network.http_port = 0;
  options.network.admin_port = port(admin);
  status = Server::Start(options).status();
  EXPECT_NE(status.message().find("--admin-port"), std::string::npos) << status;
}

}  // namespace
}  // namespace sluice
