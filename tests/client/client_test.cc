#include "client/cpp/client.h"

#include <gtest/gtest.h>

#include <atomic>

#include "proto/answer.h"
#include "tests/client/fake_server.h"
#include "tests/client/silent_proxy.h"

namespace sluice::client {
namespace {

using std::chrono::milliseconds;

constexpr int kInvalidArgument = 3, kResourceExhausted = 8, kInternal = 13, kUnavailable = 14;

class ClientTest : public testing::Test {
 protected:
  // Runs a completion to its end.
  absl::StatusOr<sluice::Answer> Stream(Client& client, const CallOptions& options = {}) {
    sluice::Answer answer;
    StreamHandler handler;
    handler.on_started = [&](const v1::Started& event) { Fold(event, &answer); };
    handler.on_delta = [&](const v1::Delta& event) { Fold(event, &answer); };
    handler.on_choice_finished = [&](const v1::ChoiceFinished& event) { Fold(event, &answer); };
    handler.on_completed = [&](const v1::Completed& event) { Fold(event, &answer); };
    const absl::Status status = client.StreamComplete(Prompt(), std::move(handler), options)->Wait();
    if (!status.ok()) return status;
    return answer;
  }

  static v1::StreamCompleteRequest Prompt() {
    v1::StreamCompleteRequest request;
    request.set_prompt("p");
    return request;
  }

  const std::unique_ptr<FakeServer> server_ = FakeServer::Start();
  const std::unique_ptr<Client> client_ = Client::Create(server_->address());
};

TEST_F(ClientTest, AStreamBringsItsEventsInOrder) {
  server_->Script({Say({"Hel", "lo"})});
  std::string events;
  StreamHandler handler;
  handler.on_started = [&](const v1::Started& event) { events += "started " + event.model() + "\n"; };
  handler.on_delta = [&](const v1::Delta& event) { events += "delta " + event.text() + "\n"; };
  handler.on_choice_finished = [&](const v1::ChoiceFinished&) { events += "choice_finished\n"; };
  handler.on_completed = [&](const v1::Completed&) { events += "completed\n"; };
  handler.on_done = [&](const absl::Status& status) { events += "done " + status.ToString() + "\n"; };
  EXPECT_TRUE(client_->StreamComplete(Prompt(), handler)->Wait().ok());
  EXPECT_EQ(events, "started fake-1\ndelta Hel\ndelta lo\nchoice_finished\ncompleted\ndone OK\n");
  events.clear();
  v1::StreamChatRequest chat;
  chat.add_messages()->set_name("n");
  EXPECT_TRUE(client_->StreamChat(chat, handler)->Wait().ok());
  EXPECT_EQ(events, "started fake-1\ndelta Hel\ndelta lo\nchoice_finished\ncompleted\ndone OK\n");
  EXPECT_EQ(server_->calls()[1].chat.messages(0).name(), "n");
}

TEST_F(ClientTest, AHandlerMayBeEmpty) { EXPECT_TRUE(client_->StreamComplete(Prompt(), {})->Wait().ok()); }

TEST_F(ClientTest, DestroyingTheHandleCancelsTheCall) {
  server_->Script({SayAndHang({"first"})});
  std::atomic<bool> saw_delta{false}, done{false};
  absl::Status last;
  {
    StreamHandler handler;
    handler.on_delta = [&](const v1::Delta&) { saw_delta = true; };
    handler.on_done = [&](const absl::Status& status) {
      last = status;
      done = true;
    };
    const auto stream = client_->StreamComplete(Prompt(), std::move(handler));
    ASSERT_TRUE(server_->WaitForCalls(1));
    EXPECT_FALSE(done);
  }
  EXPECT_TRUE(done) << "the destructor waits for on_done";
  EXPECT_TRUE(absl::IsCancelled(last));
  EXPECT_TRUE(server_->WaitForCancels(1));
}

TEST_F(ClientTest, CancelMayBeRepeatedAndComeTooLate) {
  server_->Script({SayAndHang({}), Say({"x"})});
  auto stream = client_->StreamComplete(Prompt(), {});
  ASSERT_TRUE(server_->WaitForCalls(1));
  stream->Cancel();
  stream->Cancel();
  EXPECT_TRUE(absl::IsCancelled(stream->Wait()));
  EXPECT_TRUE(absl::IsCancelled(stream->Wait())) << "waiting again gives the same";
  stream = client_->StreamComplete(Prompt(), {});
  EXPECT_TRUE(stream->Wait().ok());
  stream->Cancel();
  EXPECT_TRUE(stream->Wait().ok());
}

TEST_F(ClientTest, AStreamWithoutItsLastEventIsDataLoss) {
  Answer answer = Say({"text"});
  answer.events.pop_back();
  server_->Script({answer});
  EXPECT_TRUE(absl::IsDataLoss(Stream(*client_).status()));
}

TEST_F(ClientTest, AnEventThatCannotBeParsedEndsTheStream) {
  server_->Script({SayAndHang({"fine", "\xFF is no UTF-8", "more"})});
  std::string text;
  StreamHandler handler;
  handler.on_delta = [&](const v1::Delta& event) { text += event.text(); };
  EXPECT_TRUE(absl::IsInternal(client_->StreamComplete(Prompt(), std::move(handler))->Wait()));
  EXPECT_EQ(text, "fine");
  EXPECT_TRUE(server_->WaitForCancels(1));
}

TEST_F(ClientTest, AnErrorAfterTextKeepsTheText) {
  Answer answer = SayAndHang({"half"});
  answer.hang = false;
  answer.failure = Failure{kInternal, "the engine failed", "ENGINE_FAULT", {}, {}};
  server_->Script({answer});
  std::string text;
  StreamHandler handler;
  handler.on_delta = [&](const v1::Delta& event) { text += event.text(); };
  const absl::Status status = client_->StreamComplete(Prompt(), std::move(handler))->Wait();
  EXPECT_TRUE(absl::IsInternal(status));
  EXPECT_EQ(status.message(), "the engine failed");
  EXPECT_EQ(GetErrorDetails(status).reason, "ENGINE_FAULT");
  EXPECT_EQ(text, "half");
}

TEST_F(ClientTest, ErrorsCarryWhatTheServerSaid) {
  server_->Script({Fail({kInvalidArgument,
                         "bad",
                         "INVALID_FIELD",
                         {{"options.top_p", "must be above 0"}, {"options.n", "must be at most 16"}},
                         {}}),
                   Fail({kResourceExhausted, "full", "QUEUE_FULL", {}, 1250})});
  const absl::Status invalid = Stream(*client_).status();
  EXPECT_TRUE(absl::IsInvalidArgument(invalid));
  ErrorDetails details = GetErrorDetails(invalid);
  EXPECT_EQ(details.reason, "INVALID_FIELD");
  ASSERT_EQ(details.fields.size(), 2u);
  EXPECT_EQ(details.fields[1].field, "options.n");
  EXPECT_EQ(details.fields[1].description, "must be at most 16");
  EXPECT_FALSE(details.retry_after.has_value());

  // A unary call says the same.
  v1::CompleteRequest request;
  request.set_prompt("p");
  const absl::Status full = client_->Complete(request).status();
  EXPECT_TRUE(absl::IsResourceExhausted(full));
  details = GetErrorDetails(full);
  EXPECT_EQ(details.reason, "QUEUE_FULL");
  EXPECT_EQ(details.retry_after, milliseconds(1250));
}

TEST_F(ClientTest, ErrorsWithoutDetailsHaveNone) {
  const ErrorDetails none = GetErrorDetails(absl::InternalError("x"));
  EXPECT_TRUE(none.reason.empty() && none.fields.empty() && !none.retry_after);
  absl::Status broken = absl::InternalError("x");
  broken.SetPayload("type.googleapis.com/google.rpc.Status", absl::Cord("\xFF\xFF"));
  EXPECT_EQ(GetErrorDetails(broken).reason, "");
}

TEST_F(ClientTest, UnavailableIsTriedAgain) {
  const Answer draining = Fail({kUnavailable, "draining", "DRAINING", {}, {}});
  server_->Script({draining, draining, Say({"at last"})});
  const auto answer = Stream(*client_);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->choices(0).text(), "at last");
  EXPECT_EQ(server_->calls().size(), 3u);
}

TEST_F(ClientTest, UnavailableIsTriedFourTimesInAll) {
  server_->Script({Fail({kUnavailable, "draining", "DRAINING", {}, {}})});
  const absl::Status status = Stream(*client_).status();
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_EQ(GetErrorDetails(status).reason, "DRAINING");
  EXPECT_EQ(server_->calls().size(), 4u);
}

TEST_F(ClientTest, OtherErrorsAreNotTriedAgain) {
  server_->Script({Fail({kResourceExhausted, "full", "QUEUE_FULL", {}, 1}), Say({"x"})});
  EXPECT_TRUE(absl::IsResourceExhausted(Stream(*client_).status()));
  EXPECT_EQ(server_->calls().size(), 1u);
}

TEST_F(ClientTest, NothingIsTriedAgainAfterText) {
  Answer broken = SayAndHang({"half"});
  broken.hang = false;
  broken.failure = Failure{kUnavailable, "gone", "DRAINING", {}, {}};
  server_->Script({broken, Say({"other"})});
  EXPECT_TRUE(absl::IsUnavailable(Stream(*client_).status()));
  EXPECT_EQ(server_->calls().size(), 1u);
}

TEST_F(ClientTest, RetryingCanBeTurnedOff) {
  server_->Script({Fail({kUnavailable, "draining", "DRAINING", {}, {}}), Say({"x"})});
  ClientOptions options;
  options.retry_unavailable = false;
  EXPECT_TRUE(absl::IsUnavailable(Stream(*Client::Create(server_->address(), options)).status()));
  EXPECT_EQ(server_->calls().size(), 1u);
}

TEST_F(ClientTest, AnUnreachableServerIsNamed) {
  const auto client = Client::Create("127.0.0.1:1");
  for (const absl::Status& status : {Stream(*client).status(), client->ListModels().status()}) {
    EXPECT_TRUE(absl::IsUnavailable(status));
    EXPECT_EQ(status.message().substr(0, 13), "127.0.0.1:1: ") << status;
  }
}

TEST_F(ClientTest, ATimeoutEndsTheCallOnBothSides) {
  server_->Script({SayAndHang({"x"})});
  CallOptions options;
  options.timeout = milliseconds(1000);
  EXPECT_TRUE(absl::IsDeadlineExceeded(Stream(*client_, options).status()));
  EXPECT_TRUE(server_->WaitForCancels(1));
  const auto left = server_->calls()[0].deadline;
  ASSERT_TRUE(left.has_value());
  EXPECT_LE(*left, milliseconds(2000));  // gRPC rounds up
}

TEST_F(ClientTest, AConnectionThatIsGoneEndsItsCalls) {
  server_->Script({SayAndHang({"a"})});
  SilentProxy proxy(server_->address());
  ClientOptions options;
  options.retry_unavailable = false;
  options.keepalive_time = options.keepalive_timeout = milliseconds(300);
  const std::unique_ptr<Client> client = Client::Create(proxy.address(), options);
  StreamHandler handler;
  handler.on_delta = [&](const v1::Delta&) { proxy.FallSilent(); };
  const absl::Status status = client->StreamComplete(Prompt(), handler)->Wait();  // without an end of its own
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
}

TEST_F(ClientTest, WithoutATimeoutThereIsNoDeadline) {
  ASSERT_TRUE(Stream(*client_).ok());
  EXPECT_FALSE(server_->calls()[0].deadline.has_value());
}

TEST_F(ClientTest, MetadataAndUserAgentReachTheServer) {
  CallOptions options;
  options.metadata = {{"x-request-id", "abc"}, {"x-more", "1"}};
  ASSERT_TRUE(Stream(*client_, options).ok());
  const auto metadata = server_->calls()[0].metadata;
  EXPECT_EQ(metadata.find("x-request-id")->second, "abc");
  EXPECT_EQ(metadata.find("x-more")->second, "1");
  EXPECT_EQ(metadata.find("user-agent")->second.substr(0, 13), "sluice-client");
}

TEST_F(ClientTest, UnaryCallsReachTheirMethods) {
  server_->Script({Say({"un", "ary"})});
  v1::CompleteRequest complete;
  complete.set_prompt("p");
  EXPECT_EQ(client_->Complete(complete)->generated().choices(0).text(), "unary");
  v1::ChatRequest chat;
  chat.add_messages()->set_name("n");
  EXPECT_EQ(client_->Chat(chat)->generated().choices(0).text(), "unary");
  EXPECT_EQ(server_->calls()[0].method + " " + server_->calls()[1].method, "Complete Chat");

  v1::TokenizeRequest tokenize;
  tokenize.set_text("ab");
  EXPECT_EQ(client_->Tokenize(tokenize)->token_ids(1), uint32_t{'b'});
  v1::DetokenizeRequest detokenize;
  detokenize.add_token_ids('z');
  EXPECT_EQ(client_->Detokenize(detokenize)->text(), "z");
  v1::RenderChatRequest render;
  render.add_messages()->add_content()->set_text("hi");
  EXPECT_EQ(client_->RenderChat(render)->prompt(), "hi");
  EXPECT_EQ(client_->ListModels()->models(0).id(), "fake-1");
  EXPECT_EQ(client_->GetServerInfo()->version(), "9.9.9");
  EXPECT_EQ(client_->GetLoad()->running(), 3u);
  EXPECT_EQ(client_->Drain()->running(), 3u);
  EXPECT_TRUE(client_->CancelRequest("known").ok());
  const absl::Status unknown = client_->CancelRequest("other");
  EXPECT_TRUE(absl::IsNotFound(unknown));
  EXPECT_EQ(GetErrorDetails(unknown).reason, "REQUEST_NOT_FOUND");
}

TEST_F(ClientTest, HealthTellsServingNotServingAndUnknownApart) {
  EXPECT_EQ(client_->CheckHealth("").value(), HealthStatus::kServing);
  server_->SetHealth("readiness", false);
  EXPECT_EQ(client_->CheckHealth("readiness").value(), HealthStatus::kNotServing);
  EXPECT_EQ(client_->CheckHealth("nobody").value(), HealthStatus::kServiceUnknown);
}

TEST_F(ClientTest, CallsGoRoundTheAddressesOfAName) {
  const auto second = FakeServer::Start();
  const auto client = Client::Create("ipv4:" + server_->address() + "," + second->address());
  for (int i = 0; i < 200 && (server_->calls().empty() || second->calls().empty()); ++i) {
    ASSERT_TRUE(Stream(*client).ok());
  }
  EXPECT_FALSE(server_->calls().empty());
  EXPECT_FALSE(second->calls().empty());
}

TEST_F(ClientTest, AddressesThatDoNotServeCanBeAvoided) {
  const auto second = FakeServer::Start();
  second->SetHealth("", false);
  ClientOptions options;
  options.avoid_unhealthy = true;
  const auto client = Client::Create("ipv4:" + server_->address() + "," + second->address(), options);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(Stream(*client).ok());
  EXPECT_EQ(server_->calls().size(), 20u);
  EXPECT_EQ(second->calls().size(), 0u);
}

TEST_F(ClientTest, LargeMessagesPassBothWays) {
  server_->Script({Say({std::string(8 << 20, 'y')})});
  v1::StreamCompleteRequest request;
  request.set_prompt(std::string(3 << 20, 'x'));
  size_t got = 0;
  StreamHandler handler;
  handler.on_delta = [&](const v1::Delta& event) { got += event.text().size(); };
  const absl::Status status = client_->StreamComplete(request, std::move(handler))->Wait();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(got, size_t{8} << 20);
  EXPECT_EQ(server_->calls()[0].complete.prompt().size(), size_t{3} << 20);
}

}  // namespace
}  // namespace sluice::client
