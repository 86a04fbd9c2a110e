// Clients that ask and do not read: what the server holds for them is bounded, and nobody else pays for it.
#include <thread>

#include "tests/server/raw_http2.h"
#include "tests/server/raw_socket.h"
#include "tests/server/server_fixture.h"

namespace sluice {
namespace {

constexpr int64_t kConnectionBytes = 2 << 20, kTotalBytes = 3 << 20;

class UnreadOutputTest : public ServerTest {
 protected:
  UnreadOutputTest() {
    ServerOptions options = TestOptions();
    options.limits.max_logprobs = 250;
    options.limits.max_stream_buffer_bytes = 1 << 30;
    options.limits.max_connection_buffer_bytes = kConnectionBytes;
    options.limits.max_total_buffer_bytes = kTotalBytes;
    Start(options);
  }

  // Some 650 KB of answer for a hundred bytes of request.
  template <class Request>
  static std::string LongAnswer() {
    Request request;
    request.set_prompt("abc");
    request.mutable_options()->set_max_tokens(200);
    request.mutable_options()->set_ignore_eos(true);
    request.mutable_options()->set_logprobs(250);
    return request.SerializeAsString();
  }

  // Calls of `method` by a connection whose client opens no window for their answers.
  std::unique_ptr<RawSocket> Ask(const std::string& method, const std::string& request, uint32_t count) const {
    const std::string address = server_->grpc_address();
    auto socket = std::make_unique<RawSocket>(std::stoi(address.substr(address.rfind(':') + 1)));
    const std::string no_window("\0\4\0\0\0\0", 6);  // SETTINGS_INITIAL_WINDOW_SIZE
    std::string bytes = raw::kPreface + raw::Frame(raw::kSettings, 0, 0, no_window);
    for (uint32_t stream = 1; stream < 2 * count; stream += 2) {
      bytes += raw::Frame(raw::kHeaders, raw::kEndHeaders, stream, raw::RequestHeaders(method)) +
               raw::Frame(raw::kData, raw::kEndStream, stream, raw::Message(request));
    }
    EXPECT_TRUE(socket->Send(bytes));
    return socket;
  }

  double held() const { return Metric("sluice_output_held_bytes"); }
  double cut() const { return Metric("sluice_output_cut_total"); }

  // While the calls run: never more than the budget and what is being added.
  void ExpectBoundedUntil(const std::function<bool()>& done, double bytes) {
    WaitFor("the calls to end", [&] {
      EXPECT_LE(held(), bytes);
      return done();
    });
  }
};

TEST_F(UnreadOutputTest, UnaryAnswersOfAConnectionAreHeldWithinItsBudget) {
  const auto greedy = Ask("/sluice.v1.GenerationService/Complete", LongAnswer<v1::CompleteRequest>(), 8);
  ExpectBoundedUntil([this] { return cut() >= 4; }, kConnectionBytes);
  WaitUntilIdle();
  EXPECT_GT(held(), 0) << "what is within the budget is held";
  EXPECT_EQ(CompleteOk(Prompt("abc")).choices(0).text(), "hello");
}

TEST_F(UnreadOutputTest, StreamsOfAConnectionShareItsBudget) {
  const auto greedy = Ask("/sluice.v1.GenerationService/StreamComplete", LongAnswer<v1::StreamCompleteRequest>(), 8);
  ExpectBoundedUntil([this] { return cut() >= 5; }, kConnectionBytes);
  WaitUntilIdle();
  EXPECT_EQ(CompleteOk(Prompt("abc")).choices(0).text(), "hello");
}

TEST_F(UnreadOutputTest, TokenizedTextsCountToo) {
  v1::TokenizeRequest request;
  request.set_text(std::string(15'000, 'x'));  // of one frame; some 100 KB of answer
  const auto greedy = Ask("/sluice.v1.TokenizerService/Tokenize", request.SerializeAsString(), 4);
  WaitFor("the answers to be there", [this] { return held() > 150'000; });
  EXPECT_EQ(cut(), 0);
}

TEST_F(UnreadOutputTest, ManyConnectionsShareTheBudgetOfAll) {
  std::vector<std::unique_ptr<RawSocket>> greedy;
  for (int i = 0; i < 8; ++i) {
    greedy.push_back(Ask("/sluice.v1.GenerationService/Complete", LongAnswer<v1::CompleteRequest>(), 1));
  }
  ExpectBoundedUntil([this] { return cut() >= 2; }, kTotalBytes);
  WaitUntilIdle();
  EXPECT_EQ(CompleteOk(Prompt("abc")).choices(0).text(), "hello");
  greedy.clear();
  WaitFor("what was held to go with the connections", [this] { return held() == 0; });
}

TEST_F(UnreadOutputTest, AnAnswerLargerThanTheBudgetIsRefusedWithItsFlag) {
  v1::CompleteRequest request;
  request.ParseFromString(LongAnswer<v1::CompleteRequest>());
  request.mutable_options()->set_n(4);
  const grpc::Status status = Complete(request);
  EXPECT_EQ(status.error_code(), grpc::RESOURCE_EXHAUSTED) << status.error_message();
  EXPECT_EQ(DetailsOf(status).info.reason(), "ANSWER_TOO_LARGE");
  EXPECT_NE(status.error_message().find("--max-connection-buffer"), std::string::npos);
}

}  // namespace
}  // namespace sluice
