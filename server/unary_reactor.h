// A unary generation call: the events of the same path as a stream's, folded into one answer.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/mutex.h"
#include "server/fold_events.h"
#include "server/metrics.h"
#include "server/reply_options.h"
#include "server/reply_sink.h"
#include "server/request_message.h"
#include "server/status.h"

namespace sluice {

// Response: CompleteResponse or ChatResponse.
template <class Response>
class UnaryReactor final : public grpc::ServerUnaryReactor, public ReplySink {
 public:
  // Lives until gRPC is done with it and the last holder has let go. `context` and `answer` are the call's.
  static std::shared_ptr<UnaryReactor> Create(grpc::CallbackServerContext* context, grpc::ByteBuffer* answer) {
    auto reactor = std::shared_ptr<UnaryReactor>(new UnaryReactor(context, answer));
    MutexLock lock(&reactor->mutex_);
    reactor->self_ = reactor;
    return reactor;
  }

  // Before the first event and before gRPC gets to know the reactor.
  void SetOptions(ReplyOptions options) { options_ = std::move(options); }

  void BeginStep() override {}
  void Send(v1::Started started) override { Fold(std::move(started)); }
  void Send(v1::Delta delta) override { Fold(std::move(delta)); }
  void Send(v1::ChoiceFinished finished) override { Fold(std::move(finished)); }
  void Send(v1::Completed completed) override { Fold(std::move(completed)); }
  void Close(const absl::Status& status) override ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    if (!finished_) FinishLocked(status);
  }

 private:
  UnaryReactor(grpc::CallbackServerContext* context, grpc::ByteBuffer* answer) : context_(context), answer_(answer) {}

  void OnCancel() override ABSL_LOCKS_EXCLUDED(mutex_) {
    TellOver();  // see StreamReactor::OnCancel
    {
      MutexLock lock(&mutex_);
      if (finished_) return;
      FinishLocked(absl::CancelledError("the client is gone"));
    }
    if (options_.on_gone) options_.on_gone(ClientGone::kLeft);
  }

  void OnDone() override ABSL_LOCKS_EXCLUDED(mutex_) {
    TellOver();
    std::shared_ptr<UnaryReactor> self;  // goes last
    MutexLock lock(&mutex_);
    self = std::move(self_);
  }

  template <class Event>
  void Fold(Event event) ABSL_LOCKS_EXCLUDED(mutex_) {
    {
      MutexLock lock(&mutex_);
      if (finished_) return;
      answer_bytes_ += event.ByteSizeLong();
      if (answer_bytes_ <= options_.max_answer_bytes) return FoldEvent(std::move(event), &response_);
      FinishLocked(CallError(
          absl::StatusCode::kResourceExhausted, kReasonAnswerTooLarge,
          absl::StrCat("the answer is over ", options_.max_answer_bytes, " bytes; ask for a stream or for less")));
    }
    if (options_.on_gone) options_.on_gone(ClientGone::kTooLarge);
  }

  void FinishLocked(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    finished_ = true;
    if (status.ok()) {
      *answer_ = ToBytes(response_);
      context_->AddInitialMetadata("x-request-id", options_.request_id);
      context_->AddInitialMetadata("x-server-request-id", options_.server_request_id);
    } else {
      context_->AddTrailingMetadata("x-request-id", options_.request_id);  // see StreamReactor::FinishLocked
    }
    response_ = Response();  // the client may take long to read
    AddRetryPushback(status, context_);
    options_.metrics->CountGrpc(status.code());
    Finish(ToGrpcStatus(status));
  }

  void TellOver() ABSL_LOCKS_EXCLUDED(mutex_) {
    {
      MutexLock lock(&mutex_);
      if (std::exchange(over_, true)) return;
    }
    if (options_.on_over) options_.on_over();
  }

  // Constant once gRPC knows the reactor. Context and answer live until OnDone, which comes after Finish.
  grpc::CallbackServerContext* const context_;
  grpc::ByteBuffer* const answer_;
  ReplyOptions options_;

  Mutex mutex_;
  std::shared_ptr<UnaryReactor> self_ ABSL_GUARDED_BY(mutex_);  // keeps the object until OnDone
  Response response_ ABSL_GUARDED_BY(mutex_);
  size_t answer_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // of the events folded so far
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  bool over_ ABSL_GUARDED_BY(mutex_) = false;  // on_over has been called
};

}  // namespace sluice
