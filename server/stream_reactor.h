// The life of one server stream of events: push, write, coalesce, cancel, finish.
//
// One message is being written; what arrives meanwhile waits, deltas of one choice grown together, so that the number
// of messages follows the client's pace and the bytes are bounded. gRPC calls the reactions of one reactor from several
// threads at once, so one mutex guards all of it and every write or finish is started under it, after looking at
// finished_. The object is shared: callers may keep it longer than gRPC does.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "engine/base/mutex.h"
#include "server/calls/calls.h"
#include "server/calls/output_budget.h"
#include "server/calls/reply_sink.h"

namespace sluice {

// Of completions and chats: their events are the same bytes.
class StreamReactor final : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                            public ReplySink,
                            public std::enable_shared_from_this<StreamReactor> {
 public:
  // Lives until gRPC is done with it and the last holder has let go. `context` is the call's; `desk` and `calls` outlive
  // the reactor.
  static std::shared_ptr<StreamReactor> Create(grpc::CallbackServerContext* context, FrontDesk* desk, Calls* calls);

  // Before gRPC gets to know the reactor.
  void Open(const std::string& request_id, const std::string& server_request_id) override;
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
      : context_(context), desk_(*desk), calls_(*calls) {}

  void OnWriteDone(bool ok) override ABSL_LOCKS_EXCLUDED(mutex_);
  void OnCancel() override ABSL_LOCKS_EXCLUDED(mutex_);
  void OnDone() override ABSL_LOCKS_EXCLUDED(mutex_);

  void Append(Pending added) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static grpc::ByteBuffer Bytes(Pending pending);
  // Too much is held for the client. What gRPC has got already can be taken back only with the call.
  void Cut() ABSL_LOCKS_EXCLUDED(mutex_);
  // Starts the next write, or finishes. REQUIRES: no write is in flight and the call is not finished.
  void Advance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Legal while a write is in flight; in_flight_ then stays as it is until OnDone.
  void FinishLocked(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The call has been ended with `why`.
  void TellGone(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mutex_);
  void TellOver() ABSL_LOCKS_EXCLUDED(mutex_);

  // Constant once gRPC knows the reactor. The context lives until OnDone, which comes after Finish.
  grpc::CallbackServerContext* const context_;
  FrontDesk& desk_;
  Calls& calls_;
  std::string request_id_, server_request_id_;
  std::unique_ptr<OutputBudget::Holding> holding_;

  Mutex mutex_;
  std::shared_ptr<StreamReactor> self_ ABSL_GUARDED_BY(mutex_);  // keeps the object until OnDone
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
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  bool over_ ABSL_GUARDED_BY(mutex_) = false;  // the calls have been told
};

}  // namespace sluice
