// One generation call from its arrival to its status: who it is, whether it has been told to stop, and its output.
// Three kinds of threads touch it: gRPC's (the client leaves), ingress (reads the request, submits) and delivery (sends
// the output). Whoever stops it first says why.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/base/mutex.h"
#include "engine/engine.h"
#include "engine/request.h"
#include "server/call_output.h"
#include "server/generation.h"
#include "server/reply_sink.h"

namespace sluice {

class Call {
 public:
  // `peer`: the connection that the call came by. `cancel_key`: the caller's own request_id, empty if CancelRequest
  // knows the call by its server id only.
  Call(CallIdentity identity, std::string peer, std::string cancel_key, std::optional<int64_t> deadline_ns,
       std::shared_ptr<ReplySink> reply)
      : identity_(std::move(identity)),
        peer_(std::move(peer)),
        cancel_key_(std::move(cancel_key)),
        deadline_ns_(deadline_ns),
        reply_(std::move(reply)) {}

  const CallIdentity& identity() const { return identity_; }
  const std::string& peer() const { return peer_; }
  const std::string& cancel_key() const { return cancel_key_; }
  std::optional<int64_t> deadline_ns() const { return deadline_ns_; }
  ReplySink& reply() const { return *reply_; }

  // Any thread: the call is to end with `status` (not OK); its sequences are cancelled at once. Only the first call of
  // Stop has an effect.
  void Stop(FinishReason reason, absl::Status status) ABSL_LOCKS_EXCLUDED(mutex_);
  // Why it was stopped; OK if it was not.
  absl::Status stop_status() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Ingress, in this order: fixes what is generated; names the engine and the ids of the choices once submitted.
  void SetGeneration(Generation generation, const Tokenizer* tokenizer, Metrics* metrics);
  void SetSubmitted(Engine* engine, std::vector<SequenceId> ids) ABSL_LOCKS_EXCLUDED(mutex_);

  // Its sequences are the engine's: the delivery thread will hear of their ends.
  bool submitted() const ABSL_LOCKS_EXCLUDED(mutex_);

  const Generation& generation() const { return generation_; }
  // Of the delivery thread alone once submitted.
  CallOutput& output() { return *output_; }

 private:
  const CallIdentity identity_;
  const std::string peer_;
  const std::string cancel_key_;
  const std::optional<int64_t> deadline_ns_;
  const std::shared_ptr<ReplySink> reply_;

  // Constant once submitted.
  Generation generation_;
  std::unique_ptr<CallOutput> output_;

  mutable Mutex mutex_;
  absl::Status stop_status_ ABSL_GUARDED_BY(mutex_);
  FinishReason stop_reason_ ABSL_GUARDED_BY(mutex_) = FinishReason::kNone;
  Engine* engine_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::vector<SequenceId> ids_ ABSL_GUARDED_BY(mutex_);
};

// One debug line about a call that has ended.
void LogEnd(const CallIdentity& identity, const absl::Status& status);

// What a sequence of the engine carries as Request::context.
struct ChoiceContext {
  std::shared_ptr<Call> call;
  int index = 0;
};

}  // namespace sluice
