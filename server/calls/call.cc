#include "server/calls/call.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/check.h"
#include "engine/base/log.h"
#include "engine/base/status_macros.h"
#include "server/calls/status.h"

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

std::vector<Request> Call::Requests() {
  std::vector<Request> requests(choices_.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    Request& request = requests[i];
    // Each sequence appends to its own.
    const bool last = i + 1 == requests.size();
    request.prompt_tokens = last ? std::exchange(generation_.prompt_tokens, {}) : generation_.prompt_tokens;
    request.sampling = generation_.sampling;
    request.sampling.seed += uint64_t(i);
    // The same for every choice, so one reports it.
    if (i > 0) request.sampling.prompt_logprobs.reset();
    request.cache_salt = generation_.cache_salt;
    request.deadline_ns = origin_.deadline_ns;
    request.context = std::shared_ptr<Choice>(shared_from_this(), &choices_[i]);
  }
  return requests;
}

absl::Status Call::Submit(Generation generation, Engine* engine, const Tokenizer* tokenizer, Metrics* metrics) {
  generation_ = std::move(generation);
  engine_ = engine;
  for (int i = 0; i < generation_.num_choices; ++i) choices_.push_back({this, i});
  output_ =
      std::make_unique<CallOutput>(generation_, started_, origin_.arrival_ns, tokenizer, reply_.get(), metrics);
  SLUICE_ASSIGN_OR_RETURN(std::vector<SequenceId> ids, engine->Submit(Requests()));
  MutexLock lock(&mutex_);
  ids_ = std::move(ids);
  if (stop_status_.ok()) return absl::OkStatus();
  for (SequenceId id : ids_) engine->Cancel(id, stop_reason_);
  return absl::OkStatus();
}

bool Call::submitted() const {
  MutexLock lock(&mutex_);
  return !ids_.empty();
}

bool Call::Take(int choice, SequenceOutput output, int64_t now_ns) {
  const SequenceId id = output.id;
  const CallOutput::Progress progress = output_->Take(choice, std::move(output), now_ns);
  if (progress.cancel_sequence) engine_->Cancel(id, FinishReason::kStopSequence);
  // One failed choice fails the call; the others need not go on.
  if (!progress.error.ok()) Stop(FinishReason::kError, progress.error);
  return progress.ended;
}

void Call::Abandon(absl::Status why, int64_t now_ns) {
  Stop(FinishReason::kError, std::move(why));
  SequenceOutput lost;
  lost.finish_reason = FinishReason::kError;
  for (const Choice& choice : choices_) output_->Take(choice.index, lost, now_ns);
}

void Call::Close(const absl::Status& status) {
  Log(LogLevel::kDebug,
      absl::StrCat("call ", id(), ", request_id ", Quoted(started_.request_id()), ", user ", Quoted(user_), ": ",
                   absl::StatusCodeToString(status.code()), " ", ReasonOf(status)));
  reply_->Close(status);
}

}  // namespace sluice
