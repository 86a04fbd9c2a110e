#include "server/unary_reactor.h"

#include <cstdint>
#include <limits>
#include <utility>

#include "server/answer_bytes.h"
#include "server/metrics.h"
#include "server/status.h"

namespace sluice {

std::shared_ptr<UnaryReactor> UnaryReactor::Create(grpc::CallbackServerContext* context, grpc::ByteBuffer* answer) {
  auto reactor = std::shared_ptr<UnaryReactor>(new UnaryReactor(context, answer));
  MutexLock lock(&reactor->mutex_);
  reactor->self_ = reactor;
  return reactor;
}

void UnaryReactor::SetOptions(ReplyOptions options) {
  options_ = std::move(options);
  holding_ = options_.budget->Open(options_.peer, [weak = weak_from_this()] {
    if (const auto reactor = weak.lock()) reactor->Cut();
  });
}

void UnaryReactor::Send(AnswerEvent event) {
  const size_t bytes = event.ByteSizeLong();
  bool fits = true;
  {
    MutexLock lock(&mutex_);
    if (finished_) return;
    answer_bytes_ += bytes;
    fits = answer_bytes_ <= options_.max_answer_bytes;
    if (!fits) FinishLocked(AnswerTooLargeError(int64_t(options_.max_answer_bytes)));
  }
  if (!fits) {
    if (options_.on_gone) options_.on_gone(ClientGone::kTooLarge);
    return;
  }
  if (!holding_->Add(int64_t(bytes))) return Cut();
  MutexLock lock(&mutex_);
  if (finished_) return holding_->Remove(int64_t(bytes));
  if (event.has_delta()) {
    v1::Delta* delta = event.mutable_delta();
    prompt_logprobs_.append(TakePromptLogprobs(delta));
    if (lists_.size() <= delta->index()) lists_.resize(delta->index() + 1);
    lists_[delta->index()].append(TakeLists(delta));
  }
  Fold(std::move(event), &answer_);
}

void UnaryReactor::Close(const absl::Status& status) {
  MutexLock lock(&mutex_);
  if (!finished_) FinishLocked(status);
}

void UnaryReactor::OnCancel() {
  TellOver();  // see StreamReactor::OnCancel
  {
    MutexLock lock(&mutex_);
    if (finished_) return;
    FinishLocked(absl::CancelledError("the client is gone"));
  }
  if (options_.on_gone) options_.on_gone(ClientGone::kLeft);
}

void UnaryReactor::OnDone() {
  TellOver();
  std::shared_ptr<UnaryReactor> self;  // goes last
  MutexLock lock(&mutex_);
  done_ = true;
  holding_->Remove(std::numeric_limits<int64_t>::max());
  self = std::move(self_);
}

grpc::ByteBuffer UnaryReactor::AnswerLocked() {
  AnswerBytes bytes;
  for (const v1::Choice& choice : answer_.choices()) {
    if (lists_.size() <= choice.index()) lists_.resize(choice.index() + 1);
    bytes.AppendMessage(Answer::kChoicesFieldNumber, choice.SerializeAsString(), std::move(lists_[choice.index()]));
  }
  answer_.clear_choices();
  bytes.Append(answer_.SerializeAsString());
  bytes.Append(std::move(prompt_logprobs_));
  return bytes.Take();
}

void UnaryReactor::Cut() {
  {
    MutexLock lock(&mutex_);
    if (finished_) {
      if (!done_) context_->TryCancel();
      return;
    }
    FinishLocked(SlowConsumerError());
  }
  if (options_.on_gone) options_.on_gone(ClientGone::kNotReading);
}

void UnaryReactor::FinishLocked(const absl::Status& status) {
  finished_ = true;
  if (status.ok()) {
    *bytes_ = AnswerLocked();
    context_->AddInitialMetadata("x-request-id", options_.request_id);
    context_->AddInitialMetadata("x-server-request-id", options_.server_request_id);
  } else {
    context_->AddTrailingMetadata("x-request-id", options_.request_id);  // see StreamReactor::FinishLocked
  }
  // The client may take long to read.
  answer_.Clear();
  lists_.clear();
  prompt_logprobs_.clear();
  if (!status.ok()) holding_->Remove(std::numeric_limits<int64_t>::max());
  AddRetryPushback(status, context_);
  options_.metrics->CountGrpc(status.code());
  Finish(ToGrpcStatus(status));
}

void UnaryReactor::TellOver() {
  {
    MutexLock lock(&mutex_);
    if (std::exchange(over_, true)) return;
  }
  if (options_.on_over) options_.on_over();
}

}  // namespace sluice
