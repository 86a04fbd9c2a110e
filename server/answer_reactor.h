// A unary call whose answer is made in parts by a thread of ours, and held under the budget until its client has it.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "google/protobuf/message_lite.h"
#include "server/answer_bytes.h"
#include "server/held_reactor.h"

namespace sluice {

class AnswerReactor final : public HeldReactor<grpc::ServerUnaryReactor> {
 public:
  // `context` and `answer` are the call's; an answer of more than `max_bytes` is refused.
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
      : HeldReactor(context, metrics), answer_(answer), max_bytes_(max_bytes) {}

  void OnCancel() override ABSL_LOCKS_EXCLUDED(mutex_);
  void Cut() override ABSL_LOCKS_EXCLUDED(mutex_);

  grpc::ByteBuffer* const answer_;  // lives until OnDone
  const int64_t max_bytes_;

  AnswerBytes bytes_ ABSL_GUARDED_BY(mutex_);
  int64_t num_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status over_ ABSL_GUARDED_BY(mutex_);  // not OK: why nobody wants the answer any more
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace sluice
