// Ends a plain unary call: status with details, counted.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include "server/metrics.h"
#include "server/status.h"

namespace sluice {

inline void FinishUnary(grpc::CallbackServerContext* context, grpc::ServerUnaryReactor* reactor,
                        const absl::Status& status, Metrics* metrics) {
  AddRetryPushback(status, context);
  metrics->CountGrpc(status.code());
  reactor->Finish(ToGrpcStatus(status));
}

// For a method that has its answer at once.
inline grpc::ServerUnaryReactor* FinishUnary(grpc::CallbackServerContext* context, const absl::Status& status,
                                             Metrics* metrics) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  FinishUnary(context, reactor, status, metrics);
  return reactor;
}

}  // namespace sluice
