// A call's end as gRPC takes it.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/status.h>

#include "absl/status/status.h"
#include "server/metrics.h"

namespace sluice {

// With its google.rpc.Status (ToRpcStatus) as details.
grpc::Status ToGrpcStatus(const absl::Status& status);

// For clients that retry by their service config (gRFC A6): how long to wait when the queue is full, as the trailer
// grpc-retry-pushback-ms.
void AddRetryPushback(const absl::Status& status, grpc::ServerContextBase* context);

// Both, counted: the one way in which our calls end.
template <class Reactor>
void FinishCall(grpc::CallbackServerContext* context, Reactor* reactor, const absl::Status& status, Metrics* metrics) {
  AddRetryPushback(status, context);
  metrics->Observe(GrpcReply{status.code()});
  reactor->Finish(ToGrpcStatus(status));
}

}  // namespace sluice
