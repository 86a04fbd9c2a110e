// The front door of generation calls, whatever transport brings them: ids, admission, refusal, cancel, clients that
// leave. It knows the calls in progress, by the ids that CancelRequest takes, and those whose output is still being
// written.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "engine/base/mutex.h"
#include "server/calls/call.h"
#include "server/calls/front_desk.h"
#include "server/calls/reply_sink.h"
#include "sluice/v1/generation.pb.h"

namespace sluice {

// Thread-safe; none of it waits but WaitUntilEmpty.
class Calls {
 public:
  // `desk` outlives the object, and what it runs is over before the object goes.
  explicit Calls(FrontDesk* desk) : desk_(*desk) {}

  // Begins a call: opens `reply` and hands the request to ingress, or closes it with a refusal. `Request`:
  // CompleteRequest or ChatRequest. `readable`: not OK if there is no request to be read, and why. `memory_bytes`: about
  // what it takes. Once this has returned, `reply` may report its client's leaving.
  template <class Request>
  void Begin(std::shared_ptr<const Request> request, const absl::Status& readable, int64_t memory_bytes, Origin origin,
             std::shared_ptr<ReplySink> reply);

  // CancelRequest of `peer`: INVALID_ARGUMENT without an id, NOT_FOUND if no call in progress has it. A key that one
  // client has chosen means nothing to another: it may be guessed.
  absl::Status Cancel(const std::string& peer, const std::string& request_id) ABSL_LOCKS_EXCLUDED(mutex_);

  // From a reply: its client gets no more, so nothing is to be done for it. `why`: what the transport has ended the call
  // with, CANCELLED if it was the client who left. Ignored if the call has ended.
  void ClientGone(const std::string& server_request_id, absl::Status why) ABSL_LOCKS_EXCLUDED(mutex_);
  // From a reply: nothing more will be written. Ignored if the call was never in progress.
  void ReplyOver(const std::string& server_request_id) ABSL_LOCKS_EXCLUDED(mutex_);

  // Ends a call with `status`: it is no longer in progress, and then its client is told. Its reply stays open.
  void End(Call* call, const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);

  // In progress.
  std::vector<std::shared_ptr<Call>> All() const ABSL_LOCKS_EXCLUDED(mutex_);
  // True when there was a moment without calls and without open replies before `deadline` and before `hurry` (asked
  // every 20 ms) said to give up.
  bool WaitUntilEmpty(std::chrono::steady_clock::time_point deadline, const std::function<bool()>& hurry) const
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // ALREADY_EXISTS: a call in progress of the same peer has the same cancel_key.
  absl::Status Add(const std::shared_ptr<Call>& call) ABSL_LOCKS_EXCLUDED(mutex_);
  // Null if the call is not in progress.
  std::shared_ptr<Call> Remove(const std::string& server_request_id) ABSL_LOCKS_EXCLUDED(mutex_);
  std::shared_ptr<Call> Find(const std::string& peer, const std::string& id) const ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends a call that the engine does not know.
  void Refuse(Call* call, const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  // On an ingress thread: from the request to the engine's queue.
  template <class Request>
  absl::Status Submit(const Request& request, const ServedModel& model, Call* call);
  bool empty() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return by_server_id_.empty() && open_replies_.empty(); }

  FrontDesk& desk_;

  mutable Mutex mutex_;
  mutable CondVar empty_;
  absl::flat_hash_map<std::string, std::shared_ptr<Call>> by_server_id_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::pair<std::string, std::string>, std::shared_ptr<Call>> by_cancel_key_
      ABSL_GUARDED_BY(mutex_);  // {peer, key}
  absl::flat_hash_set<std::string> open_replies_ ABSL_GUARDED_BY(mutex_);  // server ids
};

}  // namespace sluice
