#include "server/grpc_status.h"

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "server/calls/status.h"

namespace sluice {

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const google::rpc::Status rich = ToRpcStatus(status);
  return grpc::Status(static_cast<grpc::StatusCode>(rich.code()), rich.message(), rich.SerializeAsString());
}

void AddRetryPushback(const absl::Status& status, grpc::ServerContextBase* context) {
  const auto delay = QueueRetryDelay(status);
  if (!delay.has_value()) return;
  context->AddTrailingMetadata("grpc-retry-pushback-ms", absl::StrCat(absl::ToInt64Milliseconds(*delay)));
}

}  // namespace sluice
