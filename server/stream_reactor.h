// The life of one server stream of events: push, write, coalesce, cancel, finish.
//
// One message is being written; what arrives meanwhile waits, deltas of one choice grown together, so that the number
// of messages follows the client's pace and the bytes are bounded.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "server/call_reactor.h"

namespace sluice {

// Of completions and chats: their events are the same bytes.
class StreamReactor final : public CallReactor<grpc::ServerWriteReactor<grpc::ByteBuffer>> {
 public:
  // `context` is the call's; `desk` and `calls` outlive the reactor.
  static std::shared_ptr<StreamReactor> Create(grpc::CallbackServerContext* context, FrontDesk* desk, Calls* calls);

  void BeginStep() override ABSL_LOCKS_EXCLUDED(mutex_);
  void Send(AnswerEvent event) override ABSL_LOCKS_EXCLUDED(mutex_);
  void Close(const absl::Status& status) override ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Pending {
    AnswerEvent event;
    std::string lists;  // of a delta: see TakeLists
    size_t bytes = 0;
  };

  StreamReactor(grpc::CallbackServerContext* context, FrontDesk* desk, Calls* calls)
      : CallReactor(context, desk, calls) {}

  void OnWriteDone(bool ok) override ABSL_LOCKS_EXCLUDED(mutex_);

  void Append(Pending added) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static grpc::ByteBuffer Bytes(Pending pending);
  void Cut() override ABSL_LOCKS_EXCLUDED(mutex_);
  // Starts the next write, or finishes. REQUIRES: no write is in flight and the call is not finished.
  void Advance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Legal while a write is in flight; in_flight_ then stays as it is until OnDone.
  void FinishLocked(const absl::Status& status) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // After FinishLocked: neither the sequences nor what is still being written is waited for.
  void TellGoneAndOver(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mutex_);

  std::string model_ ABSL_GUARDED_BY(mutex_);  // as the first event says
  std::deque<Pending> pending_ ABSL_GUARDED_BY(mutex_);
  size_t pending_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t step_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // of the step whose events are coming
  size_t largest_step_ ABSL_GUARDED_BY(mutex_) = 0;
  grpc::ByteBuffer in_flight_ ABSL_GUARDED_BY(mutex_);
  size_t in_flight_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::chrono::steady_clock::time_point write_started_ ABSL_GUARDED_BY(mutex_);
  absl::Status close_status_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool headers_sent_ ABSL_GUARDED_BY(mutex_) = false;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace sluice
