// grpc.health.v1.Health: Check and Watch over HealthState. gRPC's own is not used because reflection cannot describe it
// and it says SERVING before the model is there.
#pragma once

#include "grpc/health/v1/health.grpc.pb.h"
#include "server/health_state.h"

namespace sluice {

class HealthService final : public grpc::health::v1::Health::CallbackService {
 public:
  // `health` outlives the service.
  explicit HealthService(HealthState* health) : health_(*health) {}

  grpc::ServerUnaryReactor* Check(grpc::CallbackServerContext* context,
                                  const grpc::health::v1::HealthCheckRequest* request,
                                  grpc::health::v1::HealthCheckResponse* response) override;
  // Ends with UNAVAILABLE when the server stops.
  grpc::ServerWriteReactor<grpc::health::v1::HealthCheckResponse>* Watch(
      grpc::CallbackServerContext* context, const grpc::health::v1::HealthCheckRequest* request) override;

 private:
  HealthState& health_;
};

}  // namespace sluice
