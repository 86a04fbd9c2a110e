// What the reactors of generation calls share: each is the sink of its call and tells the Calls how it stands with the
// client.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "server/calls/calls.h"
#include "server/calls/reply_sink.h"
#include "server/calls/status.h"
#include "server/held_reactor.h"

namespace sluice {

template <class Reactor>
class CallReactor : public HeldReactor<Reactor>, public ReplySink {
 public:
  // Before gRPC gets to know the reactor.
  void Open(const std::string& request_id, const std::string& server_request_id) override {
    request_id_ = request_id;
    server_request_id_ = server_request_id;
  }

 protected:
  using HeldReactor<Reactor>::mutex_;

  // `desk` and `calls` outlive the reactor.
  CallReactor(grpc::CallbackServerContext* context, FrontDesk* desk, Calls* calls)
      : HeldReactor<Reactor>(context, &desk->metrics), desk_(*desk), calls_(*calls) {}

  // Ends the call and sets finished_. REQUIRES: it is not finished.
  virtual void FinishLocked(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) = 0;

  void OnCancel() override ABSL_LOCKS_EXCLUDED(mutex_) {
    // What is still being written may stay so for long, but nobody waits for it any more.
    TellOver();
    {
      MutexLock lock(&mutex_);
      if (finished_) return;
      FinishLocked(ClientLeftError());
    }
    TellGone(ClientLeftError());
  }

  void OnDone() override ABSL_LOCKS_EXCLUDED(mutex_) {
    TellOver();
    HeldReactor<Reactor>::OnDone();
  }

  // The call has been ended with `why`; its sequences need not go on.
  void TellGone(const absl::Status& why) { calls_.ClientGone(server_request_id_, why); }
  // Nothing more will be written.
  void TellOver() ABSL_LOCKS_EXCLUDED(mutex_) {
    {
      MutexLock lock(&mutex_);
      if (std::exchange(over_, true)) return;
    }
    calls_.ReplyOver(server_request_id_);
  }

  FrontDesk& desk_;
  Calls& calls_;
  std::string request_id_, server_request_id_;  // constant once gRPC knows the reactor

  bool finished_ ABSL_GUARDED_BY(mutex_) = false;

 private:
  bool over_ ABSL_GUARDED_BY(mutex_) = false;  // the calls have been told
};

}  // namespace sluice
