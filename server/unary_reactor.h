// A unary generation call: the events of the same path as a stream's, folded into one answer.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/mutex.h"
#include "server/answer_bytes.h"
#include "server/fold_events.h"
#include "server/metrics.h"
#include "server/output_budget.h"
#include "server/reply_options.h"
#include "server/reply_sink.h"
#include "server/status.h"

namespace sluice {

// Response: CompleteResponse or ChatResponse.
template <class Response>
class UnaryReactor final : public grpc::ServerUnaryReactor,
                           public ReplySink,
                           public std::enable_shared_from_this<UnaryReactor<Response>> {
 public:
  // Lives until gRPC is done with it and the last holder has let go. `context` and `answer` are the call's.
  static std::shared_ptr<UnaryReactor> Create(grpc::CallbackServerContext* context, grpc::ByteBuffer* answer) {
    auto reactor = std::shared_ptr<UnaryReactor>(new UnaryReactor(context, answer));
    MutexLock lock(&reactor->mutex_);
    reactor->self_ = reactor;
    return reactor;
  }

  // Before the first event and before gRPC gets to know the reactor.
  void SetOptions(ReplyOptions options) {
    options_ = std::move(options);
    holding_ = options_.budget->Open(options_.peer, [weak = this->weak_from_this()] {
      if (const auto reactor = weak.lock()) reactor->Cut();
    });
  }

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
    done_ = true;
    holding_->Remove(std::numeric_limits<int64_t>::max());
    self = std::move(self_);
  }

  template <class Event>
  void Fold(Event event) ABSL_LOCKS_EXCLUDED(mutex_) {
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
    Take(std::move(event));
  }

  template <class Event>
  void Take(Event event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    FoldEvent(std::move(event), &response_);
  }
  void Take(v1::Delta delta) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    prompt_logprobs_.append(TakePromptLogprobs<Response>(&delta));
    if (lists_.size() <= delta.index()) lists_.resize(delta.index() + 1);
    lists_[delta.index()].append(TakeLists(&delta));
    FoldEvent(std::move(delta), &response_);
  }

  grpc::ByteBuffer AnswerLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    AnswerBytes answer;
    lists_.resize(size_t(response_.choices_size()));
    for (int i = 0; i < response_.choices_size(); ++i) {
      answer.AppendMessage(Response::kChoicesFieldNumber, response_.choices(i).SerializeAsString(),
                           std::move(lists_[size_t(i)]));
    }
    response_.clear_choices();
    answer.Append(response_.SerializeAsString());
    answer.Append(std::move(prompt_logprobs_));
    return answer.Take();
  }

  // Too much is held for the client. What gRPC has got already can be had back only with the call.
  void Cut() ABSL_LOCKS_EXCLUDED(mutex_) {
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

  void FinishLocked(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    finished_ = true;
    if (status.ok()) {
      *answer_ = AnswerLocked();
      context_->AddInitialMetadata("x-request-id", options_.request_id);
      context_->AddInitialMetadata("x-server-request-id", options_.server_request_id);
    } else {
      context_->AddTrailingMetadata("x-request-id", options_.request_id);  // see StreamReactor::FinishLocked
    }
    // The client may take long to read.
    response_ = Response();
    lists_.clear();
    prompt_logprobs_.clear();
    if (!status.ok()) holding_->Remove(std::numeric_limits<int64_t>::max());
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
  std::unique_ptr<OutputBudget::Holding> holding_;

  Mutex mutex_;
  std::shared_ptr<UnaryReactor> self_ ABSL_GUARDED_BY(mutex_);  // keeps the object until OnDone
  Response response_ ABSL_GUARDED_BY(mutex_);             // without its lists, which wait as bytes:
  std::vector<std::string> lists_ ABSL_GUARDED_BY(mutex_);  // of each choice, see TakeLists
  std::string prompt_logprobs_ ABSL_GUARDED_BY(mutex_);
  size_t answer_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // of the events folded so far
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  bool over_ ABSL_GUARDED_BY(mutex_) = false;  // on_over has been called
};

}  // namespace sluice
