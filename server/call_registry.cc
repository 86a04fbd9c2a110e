#include "server/call_registry.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/status.h"

namespace sluice {

absl::Status CallRegistry::Add(const std::shared_ptr<Call>& call) {
  MutexLock lock(&mutex_);
  const std::string& key = call->cancel_key();
  if (!key.empty() && !by_cancel_key_.emplace(std::pair(call->peer(), key), call).second) {
    return CallError(absl::StatusCode::kAlreadyExists, kReasonRequestIdInUse,
                     absl::StrCat("request_id: ", Quoted(key), " is the id of a call in progress; choose another"));
  }
  by_server_id_.emplace(call->identity().server_request_id, call);
  open_replies_.insert(call->identity().server_request_id);
  return absl::OkStatus();
}

void CallRegistry::Remove(const Call& call) {
  std::shared_ptr<Call> removed;  // destroyed after the lock
  MutexLock lock(&mutex_);
  const auto it = by_server_id_.find(call.identity().server_request_id);
  if (it == by_server_id_.end()) return;
  removed = std::move(it->second);
  by_server_id_.erase(it);
  if (!call.cancel_key().empty()) by_cancel_key_.erase({call.peer(), call.cancel_key()});
  if (empty()) empty_.NotifyAll();
}

void CallRegistry::CloseReply(const std::string& server_request_id) {
  MutexLock lock(&mutex_);
  open_replies_.erase(server_request_id);
  if (empty()) empty_.NotifyAll();
}

std::shared_ptr<Call> CallRegistry::Find(const std::string& peer, const std::string& id) const {
  MutexLock lock(&mutex_);
  if (const auto it = by_cancel_key_.find({peer, id}); it != by_cancel_key_.end()) return it->second;
  if (const auto it = by_server_id_.find(id); it != by_server_id_.end()) return it->second;
  return nullptr;
}

std::vector<std::shared_ptr<Call>> CallRegistry::All() const {
  MutexLock lock(&mutex_);
  std::vector<std::shared_ptr<Call>> calls;
  for (const auto& [id, call] : by_server_id_) calls.push_back(call);
  return calls;
}

int64_t CallRegistry::size() const {
  MutexLock lock(&mutex_);
  return int64_t(by_server_id_.size());
}

bool CallRegistry::WaitUntilEmpty(std::chrono::steady_clock::time_point deadline,
                                  const std::function<bool()>& hurry) const {
  MutexLock lock(&mutex_);
  while (!empty()) {
    const auto now = std::chrono::steady_clock::now();
    if (now >= deadline || hurry()) return false;
    empty_.WaitUntil(&mutex_, std::min(deadline, now + std::chrono::milliseconds(20)));
  }
  return true;
}

}  // namespace sluice
