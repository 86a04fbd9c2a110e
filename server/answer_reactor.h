// A unary call whose answer is made in parts by a thread of ours, and held under the budget until its client has it.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "engine/base/mutex.h"
#include "google/protobuf/message_lite.h"
#include "server/answer_bytes.h"
#include "server/calls/output_budget.h"
#include "server/metrics.h"

namespace sluice {

class AnswerReactor final : public grpc::ServerUnaryReactor, public std::enable_shared_from_this<AnswerReactor> {
 public:
  // Lives until gRPC is done with it and the last holder has let go. `context` and `answer` are the call's; an answer
  // of more than `max_bytes` is refused.
  static std::shared_ptr<AnswerReactor> Create(grpc::CallbackServerContext* context, grpc::ByteBuffer* answer,
                                               OutputBudget* budget, int64_t max_bytes, Metrics* metrics);

  // True once the client has left, or the call was cut.
  bool Over() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Appends to the answer; parts of a list add up. An error is what the call is to be closed with.
  absl::Status Append(const google::protobuf::MessageLite& part) ABSL_LOCKS_EXCLUDED(mutex_);
  // Once: sends the answer, or the error.
  void Close(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  AnswerReactor(grpc::CallbackServerContext* context, grpc::ByteBuffer* answer, int64_t max_bytes, Metrics* metrics)
      : context_(context), answer_(answer), max_bytes_(max_bytes), metrics_(*metrics) {}

  void OnCancel() override ABSL_LOCKS_EXCLUDED(mutex_);
  void OnDone() override ABSL_LOCKS_EXCLUDED(mutex_);
  void Cut() ABSL_LOCKS_EXCLUDED(mutex_);

  // Both live until OnDone, which comes after Finish.
  grpc::CallbackServerContext* const context_;
  grpc::ByteBuffer* const answer_;
  const int64_t max_bytes_;
  Metrics& metrics_;
  std::unique_ptr<OutputBudget::Holding> holding_;  // constant once created

  mutable Mutex mutex_;
  std::shared_ptr<AnswerReactor> self_ ABSL_GUARDED_BY(mutex_);  // keeps the object until OnDone
  AnswerBytes bytes_ ABSL_GUARDED_BY(mutex_);
  int64_t num_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status over_ ABSL_GUARDED_BY(mutex_);  // not OK: why nobody wants the answer any more
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace sluice
