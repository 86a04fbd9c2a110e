#include "server/stream_reactor.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/answer_bytes.h"
#include "server/calls/status.h"
#include "server/request_message.h"

namespace sluice {
namespace {

// A message on its way to a client with default settings must stay below 4 MiB.
constexpr size_t kMaxCoalescedBytes = 1 << 20;
// What is written is the response of either.
static_assert(int(v1::StreamCompleteResponse::kEventFieldNumber) == int(v1::StreamChatResponse::kEventFieldNumber));

}  // namespace

std::shared_ptr<StreamReactor> StreamReactor::Create(grpc::CallbackServerContext* context, FrontDesk* desk,
                                                     Calls* calls) {
  auto reactor = std::shared_ptr<StreamReactor>(new StreamReactor(context, desk, calls));
  reactor->Begin(&desk->output);
  return reactor;
}

void StreamReactor::BeginStep() {
  absl::Status end;
  {
    MutexLock lock(&mutex_);
    if (finished_ || closing_) return;
    // One step may bring more than the limit (log-probabilities of a whole vocabulary): it does not count as not
    // reading until several of its kind wait.
    largest_step_ = std::max(largest_step_, std::exchange(step_bytes_, 0));
    if (pending_bytes_ <= std::max(size_t(desk_.options.limits.max_stream_buffer_bytes), 4 * largest_step_)) return;
    end = CallError(absl::StatusCode::kAborted, kReasonSlowConsumer,
                    absl::StrCat("the client does not read: ", pending_bytes_, " bytes of output wait for it"));
    FinishLocked(end);
  }
  TellGoneAndOver(end);
}

void StreamReactor::Send(AnswerEvent event) {
  Pending pending;
  if (event.has_delta()) pending.lists = TakeLists(event.mutable_delta());
  pending.bytes = event.ByteSizeLong() + pending.lists.size();
  pending.event = std::move(event);
  const size_t bytes = pending.bytes;
  if (!holding_->Add(int64_t(bytes))) return Cut();
  MutexLock lock(&mutex_);
  if (finished_ || closing_) return holding_->Remove(int64_t(bytes));
  if (pending.event.has_started()) model_ = pending.event.started().model();
  step_bytes_ += bytes;
  Append(std::move(pending));
  if (!writing_) Advance();
}

void StreamReactor::Close(const absl::Status& status) {
  MutexLock lock(&mutex_);
  if (finished_ || closing_) return;
  closing_ = true;
  close_status_ = status;
  if (!writing_) Advance();
}

void StreamReactor::OnWriteDone(bool ok) {
  bool gone = false;
  {
    MutexLock lock(&mutex_);
    writing_ = false;
    holding_->Remove(int64_t(std::exchange(in_flight_bytes_, 0)));
    if (finished_) return;
    if (ok) {
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - write_started_;
      if (!pending_.empty()) metrics_.Observe(model_, SlowWrite{took.count()});
      Advance();
    } else {
      FinishLocked(ClientLeftError());
      gone = true;
    }
  }
  if (gone) TellGoneAndOver(ClientLeftError());
}

void StreamReactor::Append(Pending added) {
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

grpc::ByteBuffer StreamReactor::Bytes(Pending pending) {
  if (pending.lists.empty()) {
    v1::StreamCompleteResponse response;
    response.mutable_event()->Swap(&pending.event);
    return ToBytes(response);
  }
  AnswerBytes bytes;
  bytes.AppendMessage(AnswerEvent::kDeltaFieldNumber, pending.event.delta().SerializeAsString(),
                      std::move(pending.lists));
  bytes.Wrap(v1::StreamCompleteResponse::kEventFieldNumber);
  return bytes.Take();
}

void StreamReactor::Cut() {
  {
    MutexLock lock(&mutex_);
    if (done_) return;
    const bool was_finished = finished_;
    if (!was_finished) FinishLocked(SlowConsumerError());
    if (writing_) context_->TryCancel();
    if (was_finished) return;
  }
  TellGoneAndOver(SlowConsumerError());
}

void StreamReactor::Advance() {
  if (pending_.empty()) {
    if (closing_) FinishLocked(close_status_);
    return;
  }
  if (!headers_sent_) {
    context_->AddInitialMetadata("x-request-id", request_id_);
    context_->AddInitialMetadata("x-server-request-id", server_request_id_);
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

void StreamReactor::FinishLocked(const absl::Status& status) {
  finished_ = true;
  pending_.clear();
  holding_->Remove(int64_t(std::exchange(pending_bytes_, 0)));
  // A refusal has no headers of its own ("trailers only"): that is what lets clients retry by their service config.
  if (!headers_sent_) context_->AddTrailingMetadata("x-request-id", request_id_);
  FinishWith(status);
}

void StreamReactor::TellGoneAndOver(const absl::Status& why) {
  TellGone(why);
  TellOver();
}

}  // namespace sluice
