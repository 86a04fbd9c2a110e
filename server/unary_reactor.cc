#include "server/unary_reactor.h"

#include <utility>

#include "server/answer_bytes.h"
#include "server/calls/status.h"

namespace sluice {

// What is written is the response of either.
static_assert(int(v1::CompleteResponse::kGeneratedFieldNumber) == int(v1::ChatResponse::kGeneratedFieldNumber));

std::shared_ptr<UnaryReactor> UnaryReactor::Create(grpc::CallbackServerContext* context, grpc::ByteBuffer* answer,
                                                   FrontDesk* desk, Calls* calls) {
  auto reactor = std::shared_ptr<UnaryReactor>(new UnaryReactor(context, answer, desk, calls));
  reactor->Begin(&desk->output);
  return reactor;
}

void UnaryReactor::Send(AnswerEvent event) {
  const int64_t bytes = int64_t(event.ByteSizeLong()), max_bytes = desk_.options.limits.max_connection_buffer_bytes;
  bool fits = true;
  {
    MutexLock lock(&mutex_);
    if (finished_) return;
    answer_bytes_ += bytes;
    fits = answer_bytes_ <= max_bytes;
    if (!fits) FinishLocked(AnswerTooLargeError(max_bytes));
  }
  if (!fits) return TellGone(AnswerTooLargeError(max_bytes));
  if (!holding_->Add(bytes)) return Cut();
  MutexLock lock(&mutex_);
  if (finished_) return holding_->Remove(bytes);
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

grpc::ByteBuffer UnaryReactor::AnswerLocked() {
  AnswerBytes bytes;
  for (const v1::Choice& choice : answer_.choices()) {
    if (lists_.size() <= choice.index()) lists_.resize(choice.index() + 1);
    bytes.AppendMessage(Answer::kChoicesFieldNumber, choice.SerializeAsString(), std::move(lists_[choice.index()]));
  }
  answer_.clear_choices();
  bytes.Append(answer_.SerializeAsString());
  bytes.Append(std::move(prompt_logprobs_));
  bytes.Wrap(v1::CompleteResponse::kGeneratedFieldNumber);
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
  TellGone(SlowConsumerError());
}

void UnaryReactor::FinishLocked(const absl::Status& status) {
  finished_ = true;
  if (status.ok()) {
    *bytes_ = AnswerLocked();
    context_->AddInitialMetadata("x-request-id", request_id_);
    context_->AddInitialMetadata("x-server-request-id", server_request_id_);
  } else {
    context_->AddTrailingMetadata("x-request-id", request_id_);  // see StreamReactor::FinishLocked
  }
  // The client may take long to read.
  answer_.Clear();
  lists_.clear();
  prompt_logprobs_.clear();
  if (!status.ok()) LetGo();
  FinishWith(status);
}

}  // namespace sluice
