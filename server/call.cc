#include "server/call.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/check.h"
#include "engine/base/log.h"
#include "server/status.h"

namespace sluice {

void Call::Stop(FinishReason reason, absl::Status status) {
  SLUICE_CHECK(!status.ok() && reason != FinishReason::kNone);
  MutexLock lock(&mutex_);
  if (!stop_status_.ok()) return;
  stop_status_ = std::move(status);
  stop_reason_ = reason;
  for (SequenceId id : ids_) engine_->Cancel(id, reason);
}

absl::Status Call::stop_status() const {
  MutexLock lock(&mutex_);
  return stop_status_;
}

void Call::SetGeneration(Generation generation, const Tokenizer* tokenizer, Metrics* metrics) {
  generation_ = std::move(generation);
  output_ = std::make_unique<CallOutput>(generation_, identity_, tokenizer, reply_.get(), metrics);
}

void Call::SetSubmitted(Engine* engine, std::vector<SequenceId> ids) {
  MutexLock lock(&mutex_);
  engine_ = engine;
  ids_ = std::move(ids);
  if (stop_status_.ok()) return;
  for (SequenceId id : ids_) engine_->Cancel(id, stop_reason_);
}

bool Call::submitted() const {
  MutexLock lock(&mutex_);
  return !ids_.empty();
}

void LogEnd(const CallIdentity& identity, const absl::Status& status) {
  Log(LogLevel::kDebug,
      absl::StrCat("call ", identity.server_request_id, ", request_id ", Quoted(identity.request_id), ", user ",
                   Quoted(identity.user), ": ", absl::StatusCodeToString(status.code()), " ", ReasonOf(status)));
}

}  // namespace sluice
