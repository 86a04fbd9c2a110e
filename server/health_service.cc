#include "server/health_service.h"

#include <grpcpp/server_context.h>

#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/base/mutex.h"
#include "server/calls/status.h"
#include "server/grpc_status.h"

namespace sluice {
namespace {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;
using ServingStatus = HealthCheckResponse::ServingStatus;

ServingStatus StatusOf(const HealthState& health, const std::string& service) {
  const std::optional<bool> serving = health.Serving(service);
  if (!serving.has_value()) return HealthCheckResponse::SERVICE_UNKNOWN;
  return *serving ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING;
}

// Sends the state whenever it differs from the last one sent. Shared, because a change may be told while gRPC ends it.
class WatchReactor final : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                           public std::enable_shared_from_this<WatchReactor> {
 public:
  // One that ends with `refused` unless that is OK.
  static WatchReactor* Start(HealthState* health, const std::string& service, const absl::Status& refused) {
    auto reactor = std::shared_ptr<WatchReactor>(new WatchReactor(health, service));
    {
      MutexLock lock(&reactor->mutex_);
      reactor->self_ = reactor;
      if (!refused.ok()) {
        reactor->FinishLocked(refused);
        return reactor.get();
      }
      reactor->subscription_ = health->Subscribe([weak = std::weak_ptr<WatchReactor>(reactor)] {
        if (const auto reactor = weak.lock()) reactor->Update();
      });
    }
    reactor->Update();
    return reactor.get();
  }

 private:
  WatchReactor(HealthState* health, const std::string& service) : health_(*health), service_(service) {}

  void OnWriteDone(bool ok) override ABSL_LOCKS_EXCLUDED(mutex_) {
    {
      MutexLock lock(&mutex_);
      writing_ = false;
      if (!ok) FinishLocked(absl::CancelledError("the client is gone"));
    }
    Update();
  }
  void OnCancel() override ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    FinishLocked(absl::CancelledError("the client is gone"));
  }
  void OnDone() override ABSL_LOCKS_EXCLUDED(mutex_) {
    std::shared_ptr<WatchReactor> self;  // goes last
    MutexLock lock(&mutex_);
    health_.Unsubscribe(subscription_);
    self = std::move(self_);
  }

  void Update() ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    if (finished_) return;
    if (health_.phase() == HealthState::Phase::kStopped) {
      return FinishLocked(CallError(absl::StatusCode::kUnavailable, kReasonStopped, "the server is shutting down"));
    }
    const ServingStatus status = StatusOf(health_, service_);
    if (writing_ || status == last_sent_) return;
    last_sent_ = status;
    HealthCheckResponse response;
    response.set_status(status);
    response_ = ToBytes(response);
    writing_ = true;
    StartWrite(&response_);
  }

  void FinishLocked(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (finished_) return;
    finished_ = true;
    Finish(ToGrpcStatus(status));
  }

  HealthState& health_;
  const std::string service_;

  Mutex mutex_;
  int subscription_ ABSL_GUARDED_BY(mutex_) = -1;
  std::shared_ptr<WatchReactor> self_ ABSL_GUARDED_BY(mutex_);  // keeps the object until OnDone
  grpc::ByteBuffer response_ ABSL_GUARDED_BY(mutex_);
  std::optional<ServingStatus> last_sent_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace

grpc::ServerUnaryReactor* HealthService::Check(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                               grpc::ByteBuffer* response) {
  HealthCheckRequest asked;
  int64_t memory_bytes = 0;
  absl::Status status = ReadRequest(request, limits_, &asked, &memory_bytes);
  HealthCheckResponse answer;
  if (status.ok()) {
    answer.set_status(StatusOf(health_, asked.service()));
    if (answer.status() == HealthCheckResponse::SERVICE_UNKNOWN) {
      status = CallError(absl::StatusCode::kNotFound, kReasonServiceUnknown,
                         absl::StrCat("service: ", Quoted(asked.service()), " is not known"));
    }
  }
  if (status.ok()) *response = ToBytes(answer);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* HealthService::Watch(grpc::CallbackServerContext*,
                                                                 const grpc::ByteBuffer* request) {
  HealthCheckRequest asked;
  int64_t memory_bytes = 0;
  const absl::Status status = ReadRequest(request, limits_, &asked, &memory_bytes);
  return WatchReactor::Start(&health_, asked.service(), status);
}

}  // namespace sluice
