// grpc.health.v1 and the HTTP probes.
#include <thread>

#include "tests/server/server_fixture.h"

namespace sluice {
namespace {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

class HealthTest : public ServerTest {
 protected:
  grpc::Status Check(const std::string& service, HealthCheckResponse* response, bool on_admin_port = false) const {
    HealthCheckRequest request;
    request.set_service(service);
    grpc::ClientContext context;
    return grpc::health::v1::Health::NewStub(on_admin_port ? admin_channel_ : channel_)
        ->Check(&context, request, response);
  }
};

TEST_F(HealthTest, EveryServiceIsServingOnceTheModelIsThere) {
  Start();
  for (const char* service : {"", "liveness", "readiness", "sluice.v1.GenerationService", "sluice.v1.TokenizerService",
                              "sluice.v1.ModelService"}) {
    HealthCheckResponse response;
    ASSERT_TRUE(Check(service, &response).ok()) << service;
    EXPECT_EQ(response.status(), HealthCheckResponse::SERVING) << service;
  }
  HealthCheckResponse response;
  EXPECT_TRUE(Check("", &response, true).ok());
}

TEST_F(HealthTest, AnUnknownServiceIsNotFound) {
  Start();
  HealthCheckResponse response;
  const grpc::Status status = Check("nobody", &response);
  EXPECT_EQ(status.error_code(), grpc::NOT_FOUND);
  EXPECT_EQ(DetailsOf(status).info.reason(), "SERVICE_UNKNOWN");
}

TEST_F(HealthTest, DrainingIsAliveButNotReady) {
  Start();
  server_->BeginDrain();
  HealthCheckResponse response;
  ASSERT_TRUE(Check("liveness", &response).ok());
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVING);
  for (const char* service : {"", "readiness", "sluice.v1.GenerationService"}) {
    ASSERT_TRUE(Check(service, &response).ok());
    EXPECT_EQ(response.status(), HealthCheckResponse::NOT_SERVING) << service;
  }
}

TEST_F(HealthTest, AWatchTellsEveryChange) {
  auto server = Server::Start(TestOptions());
  ASSERT_TRUE(server.ok());
  server_ = *std::move(server);
  channel_ = NewChannel(server_->grpc_address());
  HealthCheckRequest request;
  request.set_service("readiness");
  grpc::ClientContext context;
  const auto stub = health();
  const auto reader = stub->Watch(&context, request);
  HealthCheckResponse response;
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::NOT_SERVING);
  ASSERT_TRUE(server_->Serve(FakeHost(model_)).ok());
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVING);
  server_->BeginDrain();
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::NOT_SERVING);
  context.TryCancel();
  EXPECT_EQ(reader->Finish().error_code(), grpc::CANCELLED);
}

TEST_F(HealthTest, AWatchOfAnUnknownServiceStaysOpen) {
  Start();
  HealthCheckRequest request;
  request.set_service("nobody");
  grpc::ClientContext context;
  const auto stub = health();
  const auto reader = stub->Watch(&context, request);
  HealthCheckResponse response;
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVICE_UNKNOWN);
  context.TryCancel();
  reader->Finish();
}

TEST_F(HealthTest, AStalledEngineIsNotAliveUntilItMovesAgain) {
  ServerOptions options = TestOptions();
  options.lifecycle.watchdog_timeout = std::chrono::milliseconds(50);
  Start(options);
  model_->Hold();
  grpc::ClientContext context;
  const auto stub = generation();
  const auto reader = stub->StreamComplete(&context, StreamPrompt("abc"));
  HealthCheckResponse response;
  const auto alive = [&] {
    EXPECT_TRUE(server_->CheckEngine().ok());
    EXPECT_TRUE(Check("liveness", &response).ok());
    return response.status() == HealthCheckResponse::SERVING;
  };
  WaitFor("the watchdog to bark", [&] { return !alive(); });
  int status = 0;
  Http("/health/live", &status);
  EXPECT_EQ(status, 503);
  EXPECT_EQ(Metric("sluice_engine_healthy"), 0);
  model_->Release();
  WaitFor("the watchdog to calm down", alive);
  v1::StreamCompleteResponse event;
  while (reader->Read(&event)) {
  }
  EXPECT_TRUE(reader->Finish().ok());
}

TEST_F(HealthTest, AnIdleServerNeverStalls) {
  ServerOptions options = TestOptions();
  options.lifecycle.watchdog_timeout = std::chrono::milliseconds(1);
  Start(options);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_TRUE(server_->CheckEngine().ok());
  HealthCheckResponse response;
  ASSERT_TRUE(Check("liveness", &response).ok());
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVING);
}

TEST_F(HealthTest, ProbesAnswerWhileTheEngineHangs) {
  Start();
  model_->Hold();
  grpc::ClientContext context;
  const auto stub = generation();
  const auto reader = stub->StreamComplete(&context, StreamPrompt("abc"));
  model_->WaitUntilHeld();
  HealthCheckResponse response;
  EXPECT_TRUE(Check("", &response).ok());
  int status = 0;
  Http("/health/ready", &status);
  EXPECT_EQ(status, 200);
  EXPECT_EQ(Metric("sluice_requests_running") + Metric("sluice_requests_waiting"), 1);
  context.TryCancel();
  EXPECT_EQ(reader->Finish().error_code(), grpc::CANCELLED);
}

}  // namespace
}  // namespace sluice
