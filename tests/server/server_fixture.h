// A whole server on fakes in this process, and real gRPC clients of it.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "google/rpc/error_details.pb.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "server/server.h"
#include "sluice/v1/admin.grpc.pb.h"
#include "sluice/v1/generation.grpc.pb.h"
#include "sluice/v1/model.grpc.pb.h"
#include "sluice/v1/tokenizer.grpc.pb.h"
#include "tests/server/fake_model.h"

namespace sluice {

// All ports free, two names: "fake" and "alias".
ServerOptions TestOptions();

// The details of a failed call.
struct ErrorDetails {
  google::rpc::ErrorInfo info;
  google::rpc::BadRequest bad_request;
  google::rpc::RetryInfo retry;
  bool has_retry = false;
  // Of the first violation; empty if there is none.
  std::string field() const;
};
ErrorDetails DetailsOf(const grpc::Status& status);

// What a stream brought.
struct StreamResult {
  std::vector<v1::GenerationEvent> events;
  grpc::Status status;
  std::multimap<std::string, std::string> initial_metadata, trailing_metadata;

  std::string Text(uint32_t index = 0) const {
    std::string text;
    for (const v1::GenerationEvent& event : events) {
      if (event.has_delta() && event.delta().index() == index) text += event.delta().text();
    }
    return text;
  }
};

class ServerTest : public ::testing::Test {
 protected:
  ~ServerTest() override { Stop(); }

  // Starts the server; the host can be changed before it is served.
  void Start(const ServerOptions& options = TestOptions(), const std::function<void(ModelHost*)>& change = {});
  // Lets the model go on and ends the server.
  void Stop();

  // A connection of its own.
  std::shared_ptr<grpc::Channel> NewChannel(const std::string& address) const;

  std::unique_ptr<v1::GenerationService::Stub> generation() const { return v1::GenerationService::NewStub(channel_); }
  std::unique_ptr<v1::TokenizerService::Stub> tokenizer() const { return v1::TokenizerService::NewStub(channel_); }
  std::unique_ptr<v1::ModelService::Stub> models() const { return v1::ModelService::NewStub(channel_); }
  std::unique_ptr<v1::AdminService::Stub> admin() const { return v1::AdminService::NewStub(admin_channel_); }
  std::unique_ptr<grpc::health::v1::Health::Stub> health() const { return grpc::health::v1::Health::NewStub(channel_); }

  grpc::Status Complete(const v1::CompleteRequest& request, v1::Generated* generated) const;
  grpc::Status Complete(const v1::CompleteRequest& request) const;
  v1::Generated CompleteOk(const v1::CompleteRequest& request) const;
  StreamResult StreamComplete(const v1::StreamCompleteRequest& request, grpc::ClientContext* context = nullptr) const;
  grpc::Status Cancel(const std::string& request_id) const;
  v1::GetLoadResponse Load() const;
  // Until nothing runs, nothing waits and every block is free or cached.
  void WaitUntilIdle() const;
  // Until `condition`, at most ten seconds.
  static void WaitFor(const std::string& what, const std::function<bool()>& condition);

  // The body that HTTP GET brings, with its status.
  std::string Http(const std::string& path, int* status = nullptr, const std::string& method = "GET") const;
  // The value of a series such as `sluice_requests_total{...outcome="stop"...}`: its name and one label.
  double Metric(const std::string& name, const std::string& label = "") const;

  std::shared_ptr<FakeModel> model_ = std::make_shared<FakeModel>();
  std::unique_ptr<Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::shared_ptr<grpc::Channel> admin_channel_;
};

// A prompt of `text` with `max_tokens`.
v1::CompleteRequest Prompt(const std::string& text, uint32_t max_tokens = 0);
v1::StreamCompleteRequest StreamPrompt(const std::string& text, uint32_t max_tokens = 0);

// For clients that do not read: a connection that takes almost nothing until they do, a server that holds little for
// them, and a stream of which every event is big: about 4 KiB of log-probabilities, 250 events.
std::shared_ptr<grpc::Channel> NarrowChannel(const std::string& address);
ServerOptions SmallBuffer();
v1::StreamCompleteRequest BigEvents();

}  // namespace sluice
