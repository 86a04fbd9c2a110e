#include "server/answer_reactor.h"

#include <string>
#include <utility>

#include "server/calls/status.h"

namespace sluice {

std::shared_ptr<AnswerReactor> AnswerReactor::Create(grpc::CallbackServerContext* context, grpc::ByteBuffer* answer,
                                                     OutputBudget* budget, int64_t max_bytes, Metrics* metrics) {
  auto reactor = std::shared_ptr<AnswerReactor>(new AnswerReactor(context, answer, max_bytes, metrics));
  reactor->Begin(budget);
  return reactor;
}

bool AnswerReactor::Over() const {
  MutexLock lock(&mutex_);
  return !over_.ok();
}

absl::Status AnswerReactor::Append(const google::protobuf::MessageLite& part) {
  std::string fields = part.SerializeAsString();
  const int64_t size = int64_t(fields.size());
  {
    MutexLock lock(&mutex_);
    num_bytes_ += size;
    if (over_.ok() && num_bytes_ > max_bytes_) over_ = AnswerTooLargeError(max_bytes_);
    if (!over_.ok()) return over_;
  }
  if (!holding_->Add(size)) Cut();
  MutexLock lock(&mutex_);
  if (!over_.ok()) return over_;
  bytes_.Append(std::move(fields));
  return absl::OkStatus();
}

void AnswerReactor::Close(const absl::Status& status) {
  MutexLock lock(&mutex_);
  closed_ = true;
  const absl::Status& end = over_.ok() ? status : over_;
  grpc::ByteBuffer bytes = bytes_.Take();
  if (end.ok()) {
    *answer_ = std::move(bytes);
  } else {
    bytes.Clear();
    LetGo();
  }
  FinishWith(end);
}

void AnswerReactor::OnCancel() {
  MutexLock lock(&mutex_);
  if (over_.ok()) over_ = ClientLeftError();
}

void AnswerReactor::Cut() {
  MutexLock lock(&mutex_);
  if (over_.ok()) over_ = SlowConsumerError();
  // What gRPC has can be taken back in no other way.
  if (closed_ && !done_) context_->TryCancel();
}

}  // namespace sluice
