// grpc.health.v1.Health: Check and Watch over HealthState. gRPC's own is not used because reflection cannot describe it
// and it says SERVING before the model is there.
#pragma once

#include "grpc/health/v1/health.grpc.pb.h"
#include "server/calls/health_state.h"
#include "server/request_message.h"

namespace sluice {

// Takes bytes: see request_message.h.
using RawHealthService = grpc::health::v1::Health::WithRawCallbackMethod_Check<
    grpc::health::v1::Health::WithRawCallbackMethod_Watch<grpc::health::v1::Health::Service>>;

class HealthService final : public RawHealthService {
 public:
  // `health` outlives the service.
  HealthService(HealthState* health, const LimitOptions& limits) : health_(*health), limits_(limits) {}

  grpc::ServerUnaryReactor* Check(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                  grpc::ByteBuffer* response) override;
  // Ends with UNAVAILABLE when the server stops.
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Watch(grpc::CallbackServerContext* context,
                                                    const grpc::ByteBuffer* request) override;

 private:
  HealthState& health_;
  const LimitOptions limits_;
};

}  // namespace sluice
