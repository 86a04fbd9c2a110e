// What reactors share that hold output for a client: how long they live, the budget that the output counts against, and
// the call's end.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "engine/base/mutex.h"
#include "server/calls/output_budget.h"
#include "server/grpc_status.h"
#include "server/metrics.h"

namespace sluice {

// `Reactor`: a reactor of gRPC's, which calls its reactions from several threads at once. One mutex guards all that
// changes; every write or finish is started under it.
template <class Reactor>
class HeldReactor : public Reactor, public std::enable_shared_from_this<HeldReactor<Reactor>> {
 protected:
  HeldReactor(grpc::CallbackServerContext* context, Metrics* metrics) : context_(context), metrics_(*metrics) {}

  // Once, before gRPC gets to know the reactor, which from now on lives until gRPC is done with it and the last holder
  // has let go. REQUIRES: a shared_ptr has it.
  void Begin(OutputBudget* budget) ABSL_LOCKS_EXCLUDED(mutex_) {
    holding_ = budget->Open(context_->peer(), [weak = this->weak_from_this()] {
      if (const auto reactor = weak.lock()) reactor->Cut();
    });
    MutexLock lock(&mutex_);
    self_ = this->shared_from_this();
  }

  // Too much is held for the client. What gRPC has got already can be taken back only with the call.
  virtual void Cut() ABSL_LOCKS_EXCLUDED(mutex_) = 0;

  void OnDone() override ABSL_LOCKS_EXCLUDED(mutex_) {
    std::shared_ptr<HeldReactor> self;  // goes last
    MutexLock lock(&mutex_);
    done_ = true;
    LetGo();
    self = std::move(self_);
  }

  // Nothing more is held for the client.
  void LetGo() { holding_->Remove(std::numeric_limits<int64_t>::max()); }

  void FinishWith(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    FinishCall(context_, this, status, &metrics_);
  }

  // Constant once gRPC knows the reactor. The context lives until OnDone, which comes after Finish.
  grpc::CallbackServerContext* const context_;
  Metrics& metrics_;
  std::unique_ptr<OutputBudget::Holding> holding_;

  mutable Mutex mutex_;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;

 private:
  std::shared_ptr<HeldReactor> self_ ABSL_GUARDED_BY(mutex_);  // keeps the object until OnDone
};

}  // namespace sluice
