#include "tests/server/server_fixture.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <sstream>
#include <thread>

#include "google/rpc/status.pb.h"

namespace sluice {

ServerOptions TestOptions() {
  ServerOptions options;
  options.model.path = "fake";
  options.model.names = {"fake", "alias"};
  options.network.host = "127.0.0.1";
  options.network.grpc_port = 0;
  options.network.http_port = 0;
  options.network.admin_port = 0;
  return options;
}

std::string ErrorDetails::field() const {
  return bad_request.field_violations_size() == 0 ? "" : bad_request.field_violations(0).field();
}

ErrorDetails DetailsOf(const grpc::Status& status) {
  google::rpc::Status rich;
  EXPECT_TRUE(rich.ParseFromString(status.error_details()));
  EXPECT_EQ(rich.code(), int(status.error_code()));
  EXPECT_EQ(rich.message(), status.error_message());
  ErrorDetails details;
  for (const google::protobuf::Any& any : rich.details()) {
    any.UnpackTo(&details.info);
    any.UnpackTo(&details.bad_request);
    if (any.UnpackTo(&details.retry)) details.has_retry = true;
  }
  EXPECT_EQ(details.info.domain(), "sluice") << status.error_message();
  EXPECT_NE(details.info.reason(), "") << status.error_message();
  return details;
}

void ServerTest::Start(const ServerOptions& options, const std::function<void(ModelHost*)>& change) {
  auto server = Server::Start(options);
  ASSERT_TRUE(server.ok()) << server.status();
  server_ = *std::move(server);
  ModelHost host = FakeHost(model_);
  host.engine.prefix_cache = options.model.prefix_cache;
  if (change) change(&host);
  const absl::Status served = server_->Serve(std::move(host));
  ASSERT_TRUE(served.ok()) << served;
  channel_ = NewChannel(server_->grpc_address());
  admin_channel_ = NewChannel(server_->admin_address());
}

void ServerTest::Stop() {
  model_->Release();
  if (server_ != nullptr) server_->Stop();
  server_.reset();
}

std::shared_ptr<grpc::Channel> ServerTest::NewChannel(const std::string& address) const {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetMaxReceiveMessageSize(-1);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

grpc::Status ServerTest::Complete(const v1::CompleteRequest& request, v1::Generated* generated) const {
  grpc::ClientContext context;
  v1::CompleteResponse response;
  const grpc::Status status = generation()->Complete(&context, request, &response);
  generated->Swap(response.mutable_generated());
  return status;
}

grpc::Status ServerTest::Complete(const v1::CompleteRequest& request) const {
  v1::Generated generated;
  return Complete(request, &generated);
}

v1::Generated ServerTest::CompleteOk(const v1::CompleteRequest& request) const {
  v1::Generated generated;
  const grpc::Status status = Complete(request, &generated);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return generated;
}

StreamResult ServerTest::StreamComplete(const v1::StreamCompleteRequest& request, grpc::ClientContext* context) const {
  grpc::ClientContext own;
  if (context == nullptr) context = &own;
  StreamResult result;
  const auto stub = generation();
  const auto reader = stub->StreamComplete(context, request);
  v1::StreamCompleteResponse response;
  while (reader->Read(&response)) result.events.push_back(std::move(*response.mutable_event()));
  result.status = reader->Finish();
  for (const auto& [key, value] : context->GetServerInitialMetadata()) {
    result.initial_metadata.emplace(std::string(key.data(), key.size()), std::string(value.data(), value.size()));
  }
  for (const auto& [key, value] : context->GetServerTrailingMetadata()) {
    result.trailing_metadata.emplace(std::string(key.data(), key.size()), std::string(value.data(), value.size()));
  }
  return result;
}

grpc::Status ServerTest::Cancel(const std::string& request_id) const {
  v1::CancelRequestRequest request;
  request.set_request_id(request_id);
  v1::CancelRequestResponse response;
  grpc::ClientContext context;
  return generation()->CancelRequest(&context, request, &response);
}

v1::GetLoadResponse ServerTest::Load() const {
  v1::GetLoadResponse load;
  grpc::ClientContext context;
  const grpc::Status status = admin()->GetLoad(&context, {}, &load);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return load;
}

void ServerTest::WaitUntilIdle() const {
  WaitFor("the engine to be idle", [this] {
    const v1::GetLoadResponse load = Load();
    return load.running() == 0 && load.waiting() == 0 && load.kv_blocks_live() == 0 &&
           load.kv_blocks_free() + load.kv_blocks_cached() == load.kv_blocks_total();
  });
}

void ServerTest::WaitFor(const std::string& what, const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!condition()) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "waited in vain for " << what;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

std::string ServerTest::Http(const std::string& path, int* status, const std::string& method) const {
  namespace http = boost::beast::http;
  boost::asio::io_context context;
  boost::asio::ip::tcp::socket socket(context);
  const std::string address = server_->http_address();
  const size_t colon = address.rfind(':');
  socket.connect({boost::asio::ip::make_address(address.substr(0, colon)),
                  static_cast<unsigned short>(std::stoi(address.substr(colon + 1)))});
  http::request<http::empty_body> request(http::string_to_verb(method), path, 11);
  request.keep_alive(false);
  http::write(socket, request);
  boost::beast::flat_buffer buffer;
  http::response<http::string_body> response;
  http::read(socket, buffer, response);
  if (status != nullptr) *status = int(response.result_int());
  return response.body();
}

double ServerTest::Metric(const std::string& name, const std::string& label) const {
  std::istringstream lines(Http("/metrics"));
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(name + "{", 0) != 0 && line.rfind(name + " ", 0) != 0) continue;
    if (line.find(label) == std::string::npos) continue;
    return std::stod(line.substr(line.rfind(' ') + 1));
  }
  ADD_FAILURE() << "no series " << name << " with " << label;
  return -1;
}

v1::CompleteRequest Prompt(const std::string& text, uint32_t max_tokens) {
  v1::CompleteRequest request;
  request.set_prompt(text);
  if (max_tokens > 0) request.mutable_options()->set_max_tokens(max_tokens);
  return request;
}

v1::StreamCompleteRequest StreamPrompt(const std::string& text, uint32_t max_tokens) {
  v1::StreamCompleteRequest request;
  request.set_prompt(text);
  if (max_tokens > 0) request.mutable_options()->set_max_tokens(max_tokens);
  return request;
}

std::shared_ptr<grpc::Channel> NarrowChannel(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

ServerOptions SmallBuffer() {
  ServerOptions options = TestOptions();
  options.limits.max_logprobs = 250;
  options.limits.max_stream_buffer_bytes = 16 << 10;
  return options;
}

v1::StreamCompleteRequest BigEvents() {
  v1::StreamCompleteRequest request = StreamPrompt("abc");
  request.mutable_options()->set_ignore_eos(true);
  request.mutable_options()->set_logprobs(250);
  return request;
}

}  // namespace sluice
