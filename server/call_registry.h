// The generation calls in progress, by the ids that CancelRequest takes, and those whose output is still being written.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "engine/base/mutex.h"
#include "server/call.h"

namespace sluice {

// Thread-safe.
class CallRegistry {
 public:
  // From now on the call is in progress and its reply is open. ALREADY_EXISTS: a call in progress of the
  // same peer has the same cancel_key.
  absl::Status Add(const std::shared_ptr<Call>& call) ABSL_LOCKS_EXCLUDED(mutex_);
  // Ignores a call that is not there any more. Its reply stays open.
  void Remove(const Call& call) ABSL_LOCKS_EXCLUDED(mutex_);
  // Nothing more will be written for the call of this id; ignored if its reply is not open.
  void CloseReply(const std::string& server_request_id) ABSL_LOCKS_EXCLUDED(mutex_);
  // A call of `peer` by its cancel_key, or of anybody by its server_request_id; null if there is none. A key that one
  // client has chosen means nothing to another: it may be guessed.
  std::shared_ptr<Call> Find(const std::string& peer, const std::string& id) const ABSL_LOCKS_EXCLUDED(mutex_);

  std::vector<std::shared_ptr<Call>> All() const ABSL_LOCKS_EXCLUDED(mutex_);
  int64_t size() const ABSL_LOCKS_EXCLUDED(mutex_);
  // True when there was a moment without calls and without open replies before `deadline` and before `hurry` (asked
  // every 20 ms) said to give up.
  bool WaitUntilEmpty(std::chrono::steady_clock::time_point deadline, const std::function<bool()>& hurry) const
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  bool empty() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return by_server_id_.empty() && open_replies_.empty(); }

  mutable Mutex mutex_;
  mutable CondVar empty_;
  absl::flat_hash_map<std::string, std::shared_ptr<Call>> by_server_id_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::pair<std::string, std::string>, std::shared_ptr<Call>> by_cancel_key_
      ABSL_GUARDED_BY(mutex_);  // {peer, key}
  absl::flat_hash_set<std::string> open_replies_ ABSL_GUARDED_BY(mutex_);  // server ids
};

}  // namespace sluice
