// The client's address reaches gRPC's handlers through the door in front of it.
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "grpc/health/v1/health.grpc.pb.h"
#include "server/net/grpc_front.h"
#include "tests/server/peer_of.h"

namespace sluice {
namespace {

using grpc::health::v1::Health;
using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

class PeersOfCalls final : public Health::Service {
 public:
  grpc::Status Check(grpc::ServerContext* context, const HealthCheckRequest*, HealthCheckResponse*) override {
    peers.push_back(context->peer());
    return grpc::Status::OK;
  }
  std::vector<std::string> peers;
};

GrpcFrontOptions Options() {
  GrpcFrontOptions options;
  options.name = "test";
  return options;
}

TEST(Peer, IsTheClientsAddressAndUniqueToItsConnection) {
  for (const absl::string_view host : {absl::string_view("127.0.0.1"), absl::string_view("::1")}) {
    auto listener = Listener::Open("--x", host, 0);
    if (!listener.ok()) continue;  // a machine without IPv6
    PeersOfCalls service;
    grpc::ServerBuilder builder;
    const auto acceptor = builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, grpc::InsecureServerCredentials());
    builder.RegisterService(&service);
    const auto server = builder.BuildAndStart();
    ASSERT_NE(server, nullptr);
    const auto front = GrpcFront::Start(
        *std::move(listener), Options(),
        [&](UniqueFd fd) {
          grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
          connection.fd = fd.release();
          acceptor->HandleNewConnection(&connection);
        },
        [](bool) {});
    ASSERT_TRUE(front.ok());
    for (int i = 0; i < 2; ++i) {
      grpc::ChannelArguments arguments;
      arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
      const auto stub = Health::NewStub(grpc::CreateCustomChannel((*front)->address().ToString(),
                                                                  grpc::InsecureChannelCredentials(), arguments));
      grpc::ClientContext context;
      HealthCheckResponse response;
      const grpc::Status status = stub->Check(&context, {}, &response);
      ASSERT_TRUE(status.ok()) << status.error_message();
    }
    (*front)->Stop();
    server->Shutdown();
    ASSERT_EQ(service.peers.size(), 2u);
    EXPECT_NE(service.peers[0], service.peers[1]);
    const std::string written = (*front)->address().ToString();
    const std::string expected = written.substr(0, written.rfind(':') + 1);
    for (const std::string& peer : service.peers) EXPECT_EQ(PeerOf(peer).rfind(expected, 0), 0u) << peer;
    EXPECT_NE(PeerOf(service.peers[0]), PeerOf(service.peers[1]));
  }
}

}  // namespace
}  // namespace sluice
