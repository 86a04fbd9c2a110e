// The life of one server stream of events: push, write, coalesce, cancel, finish.
//
// One message is being written; what arrives meanwhile waits, deltas of one choice grown together, so that the number
// of messages follows the client's pace and the bytes are bounded. gRPC calls the reactions of one reactor from several
// threads at once, so one mutex guards all of it and every write or finish is started under it, after looking at
// finished_. The object is shared: callers may keep it longer than gRPC does.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/mutex.h"
#include "server/answer_bytes.h"
#include "server/metrics.h"
#include "server/output_budget.h"
#include "server/reply_options.h"
#include "server/reply_sink.h"
#include "server/request_message.h"
#include "server/status.h"

namespace sluice {

// Response: the type of the events, which gRPC gets as bytes.
template <class Response>
class StreamReactor final : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                            public ReplySink,
                            public std::enable_shared_from_this<StreamReactor<Response>> {
 public:
  // Lives until gRPC is done with it and the last holder has let go. `context` is the call's.
  static std::shared_ptr<StreamReactor> Create(grpc::CallbackServerContext* context) {
    auto reactor = std::shared_ptr<StreamReactor>(new StreamReactor(context));
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

  void BeginStep() override ABSL_LOCKS_EXCLUDED(mutex_) {
    {
      MutexLock lock(&mutex_);
      if (finished_ || closing_) return;
      // One step may bring more than the limit (log-probabilities of a whole vocabulary): it does not count as not
      // reading until several of its kind wait.
      largest_step_ = std::max(largest_step_, std::exchange(step_bytes_, 0));
      if (pending_bytes_ <= std::max(options_.max_pending_bytes, 4 * largest_step_)) return;
      FinishLocked(
          CallError(absl::StatusCode::kAborted, kReasonSlowConsumer,
                    absl::StrCat("the client does not read: ", pending_bytes_, " bytes of output wait for it")));
    }
    TellGone(ClientGone::kNotReading);
  }

  void Send(v1::Started started) override {
    Response event;
    *event.mutable_started() = std::move(started);
    Push(std::move(event));
  }
  void Send(v1::Delta delta) override {
    Response event;
    *event.mutable_delta() = std::move(delta);
    Push(std::move(event));
  }
  void Send(v1::ChoiceFinished finished) override {
    Response event;
    *event.mutable_choice_finished() = std::move(finished);
    Push(std::move(event));
  }
  void Send(v1::Completed completed) override {
    Response event;
    *event.mutable_completed() = std::move(completed);
    Push(std::move(event));
  }
  void Close(const absl::Status& status) override ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    if (finished_ || closing_) return;
    closing_ = true;
    close_status_ = status;
    if (!writing_) Advance();
  }

 private:
  using TimePoint = std::chrono::steady_clock::time_point;

  // A message on its way to a client with default settings must stay below 4 MiB.
  static constexpr size_t kMaxCoalescedBytes = 1 << 20;

  struct Pending {
    Response event;
    std::string lists;  // of a delta: see TakeLists
    size_t bytes = 0;
  };

  explicit StreamReactor(grpc::CallbackServerContext* context) : context_(context) {}

  void OnWriteDone(bool ok) override ABSL_LOCKS_EXCLUDED(mutex_) {
    bool gone = false;
    {
      MutexLock lock(&mutex_);
      writing_ = false;
      holding_->Remove(int64_t(std::exchange(in_flight_bytes_, 0)));
      if (finished_) return;
      if (ok) {
        if (!pending_.empty()) options_.metrics->ObserveBackpressure(SecondsSince(write_started_));
        Advance();
      } else {
        FinishLocked(absl::CancelledError("the client is gone"));
        gone = true;
      }
    }
    if (gone) TellGone(ClientGone::kLeft);
  }

  void OnCancel() override ABSL_LOCKS_EXCLUDED(mutex_) {
    // What is still being written may stay so for long, but nobody waits for it any more.
    TellOver();
    {
      MutexLock lock(&mutex_);
      if (finished_) return;
      FinishLocked(absl::CancelledError("the client is gone"));
    }
    TellGone(ClientGone::kLeft);
  }

  void OnDone() override ABSL_LOCKS_EXCLUDED(mutex_) {
    TellOver();
    std::shared_ptr<StreamReactor> self;  // goes last
    MutexLock lock(&mutex_);
    done_ = true;
    holding_->Remove(std::numeric_limits<int64_t>::max());
    self = std::move(self_);
  }

  void Push(Response event) ABSL_LOCKS_EXCLUDED(mutex_) {
    Pending pending;
    if (event.has_delta()) pending.lists = TakeLists(event.mutable_delta());
    pending.bytes = event.ByteSizeLong() + pending.lists.size();
    pending.event = std::move(event);
    const size_t bytes = pending.bytes;
    if (!holding_->Add(int64_t(bytes))) return Cut();
    MutexLock lock(&mutex_);
    if (finished_ || closing_) return holding_->Remove(int64_t(bytes));
    step_bytes_ += bytes;
    Append(std::move(pending));
    if (!writing_) Advance();
  }

  void Append(Pending added) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    pending_bytes_ += added.bytes;
    if (added.event.has_delta()) {
      for (auto it = pending_.rbegin(); it != pending_.rend(); ++it) {
        if (!it->event.has_delta() || it->event.delta().index() != added.event.delta().index()) continue;
        if (it->bytes + added.bytes > kMaxCoalescedBytes) break;
        it->event.mutable_delta()->mutable_text()->append(added.event.delta().text());
        it->lists.append(added.lists);
        it->bytes += added.bytes;
        return;
      }
    }
    pending_.push_back(std::move(added));
  }

  static grpc::ByteBuffer Bytes(Pending pending) {
    if (pending.lists.empty()) return ToBytes(pending.event);
    AnswerBytes bytes;
    bytes.AppendMessage(Response::kDeltaFieldNumber, pending.event.delta().SerializeAsString(),
                        std::move(pending.lists));
    return bytes.Take();
  }

  // Too much is held for the client. What gRPC has got already can be had back only with the call.
  void Cut() ABSL_LOCKS_EXCLUDED(mutex_) {
    {
      MutexLock lock(&mutex_);
      if (done_) return;
      const bool was_finished = finished_;
      if (!was_finished) FinishLocked(SlowConsumerError());
      if (writing_) context_->TryCancel();
      if (was_finished) return;
    }
    TellGone(ClientGone::kNotReading);
  }

  // Starts the next write, or finishes. REQUIRES: no write is in flight and the call is not finished.
  void Advance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (pending_.empty()) {
      if (closing_) FinishLocked(close_status_);
      return;
    }
    if (!headers_sent_) {
      context_->AddInitialMetadata("x-request-id", options_.request_id);
      context_->AddInitialMetadata("x-server-request-id", options_.server_request_id);
    }
    headers_sent_ = true;
    in_flight_bytes_ = pending_.front().bytes;
    pending_bytes_ -= in_flight_bytes_;
    in_flight_ = Bytes(std::move(pending_.front()));
    pending_.pop_front();
    writing_ = true;
    write_started_ = std::chrono::steady_clock::now();
    StartWrite(&in_flight_);
  }

  // Legal while a write is in flight; in_flight_ then stays as it is until OnDone.
  void FinishLocked(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    finished_ = true;
    pending_.clear();
    holding_->Remove(int64_t(std::exchange(pending_bytes_, 0)));
    // A refusal has no headers of its own ("trailers only"): that is what lets clients retry by their service config.
    if (!headers_sent_) context_->AddTrailingMetadata("x-request-id", options_.request_id);
    AddRetryPushback(status, context_);
    options_.metrics->CountGrpc(status.code());
    Finish(ToGrpcStatus(status));
  }

  void TellGone(ClientGone why) ABSL_LOCKS_EXCLUDED(mutex_) {
    if (options_.on_gone) options_.on_gone(why);
    TellOver();
  }

  void TellOver() ABSL_LOCKS_EXCLUDED(mutex_) {
    {
      MutexLock lock(&mutex_);
      if (std::exchange(over_, true)) return;
    }
    if (options_.on_over) options_.on_over();
  }

  static double SecondsSince(TimePoint start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  // Constant once gRPC knows the reactor. The context lives until OnDone, which comes after Finish.
  grpc::CallbackServerContext* const context_;
  ReplyOptions options_;
  std::unique_ptr<OutputBudget::Holding> holding_;

  Mutex mutex_;
  std::shared_ptr<StreamReactor> self_ ABSL_GUARDED_BY(mutex_);  // keeps the object until OnDone
  std::deque<Pending> pending_ ABSL_GUARDED_BY(mutex_);
  size_t pending_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t step_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // of the step whose events are coming
  size_t largest_step_ ABSL_GUARDED_BY(mutex_) = 0;
  grpc::ByteBuffer in_flight_ ABSL_GUARDED_BY(mutex_);
  size_t in_flight_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  TimePoint write_started_ ABSL_GUARDED_BY(mutex_);
  absl::Status close_status_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool headers_sent_ ABSL_GUARDED_BY(mutex_) = false;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  bool over_ ABSL_GUARDED_BY(mutex_) = false;  // on_over has been called
};

}  // namespace sluice
