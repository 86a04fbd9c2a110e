#include "engine/engine.h"

#include <algorithm>
#include <optional>
#include <thread>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "engine/base/check.h"
#include "engine/base/log.h"
#include "engine/base/mutex.h"
#include "engine/base/status_macros.h"
#include "engine/error_reason.h"
#include "engine/retry_after.h"
#include "engine/scheduler/queue_time.h"
#include "engine/scheduler/scheduler.h"
#include "engine/scheduler/validate.h"

namespace sluice {
namespace {

struct Arrival {
  SequenceId id = 0;
  SequenceId first_sibling = 0;  // of its submission
  int64_t arrival_ns = 0;
  Request request;
};

struct Cancellation {
  SequenceId id = 0;
  FinishReason reason = FinishReason::kCancelled;
};

// What callers left for the engine thread since it last looked.
struct Inbox {
  std::vector<Arrival> arrivals;
  int64_t num_tokens = 0;  // of the arrivals' prompts
  std::vector<Cancellation> cancellations;
  bool drain = false;  // submissions of which nothing ever ran are to be sent away

  bool empty() const { return arrivals.empty() && cancellations.empty() && !drain; }
  void Clear() {
    arrivals.clear();
    num_tokens = 0;
    cancellations.clear();
    drain = false;
  }
};

// A refusal that ends once the queue, of `num_waiting`, has lost `excess` of them.
absl::Status QueueFullError(absl::string_view message, int64_t num_waiting, int64_t excess, const QueueDrain& drain) {
  const absl::Status status = WithReason(absl::ResourceExhaustedError(message), kReasonQueueFull);
  if (drain.admissions_per_second == 0) return status;
  // More may be asked for at once than wait.
  return WithRetryAfter(status, SensibleRetry(TimeToShrink(std::max(num_waiting, excess), excess, drain)));
}

absl::Status DrainingError() {
  return WithReason(absl::UnavailableError("the server is draining and takes no new requests"), kReasonDraining);
}

}  // namespace

class Engine::Impl {
 public:
  Impl(const EngineOptions& options, std::unique_ptr<StepRunner> runner, TokenSink* sink, const Clock& clock)
      : options_(options), clock_(clock), sink_(sink), runner_(std::move(runner)), scheduler_(options) {
    PublishStats();
    thread_ = std::thread([this] { Loop(); });
  }
  ~Impl() { Stop(); }

  absl::StatusOr<std::vector<SequenceId>> Submit(std::vector<Request> requests) ABSL_LOCKS_EXCLUDED(mutex_);
  void Cancel(SequenceId id, FinishReason reason) ABSL_LOCKS_EXCLUDED(mutex_);
  EngineStats Stats() const ABSL_LOCKS_EXCLUDED(mutex_);
  std::string DescribeWorkers() const { return runner_->DescribeWorkers(); }
  void Drain() ABSL_LOCKS_EXCLUDED(mutex_);
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_, stop_mutex_);

 private:
  absl::Status CheckOpen() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckQueue(int64_t num_requests, int64_t num_tokens) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // On the engine thread.
  void Loop() ABSL_LOCKS_EXCLUDED(mutex_);
  bool has_work() const { return scheduler_.has_sequences() || scheduler_.num_steps_in_flight() > 0; }
  bool TakeInbox() ABSL_LOCKS_EXCLUDED(mutex_);
  void ApplyInbox() ABSL_LOCKS_EXCLUDED(mutex_);
  void Step() ABSL_LOCKS_EXCLUDED(mutex_);
  bool LaunchStep() ABSL_LOCKS_EXCLUDED(mutex_);
  void CommitStep() ABSL_LOCKS_EXCLUDED(mutex_);
  void GiveUp(const absl::Status& device_fault);
  void FinishAll(FinishReason reason, const absl::Status& error) ABSL_LOCKS_EXCLUDED(mutex_);
  void PublishStats(std::optional<int64_t> progress_ns = std::nullopt) ABSL_LOCKS_EXCLUDED(mutex_);
  void Deliver(const StepStats& stats);

  // Constant after construction.
  const EngineOptions options_;
  const Clock& clock_;
  TokenSink* const sink_;

  // Of the engine thread alone, but for runner_->DescribeWorkers().
  const std::unique_ptr<StepRunner> runner_;
  Scheduler scheduler_;
  Inbox taken_;                          // swapped with inbox_, so both keep their memory
  std::vector<SequenceOutput> outputs_;  // on their way to the sink
  int64_t num_steps_ = 0;
  absl::Status fault_;

  mutable Mutex mutex_;
  CondVar wake_;  // inbox_ is no longer empty, or stopping_
  Inbox inbox_ ABSL_GUARDED_BY(mutex_);
  SequenceId next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  // As of the last PublishStats; Submit keeps the waiting ones up to date in between, so that its limits hold.
  EngineStats stats_ ABSL_GUARDED_BY(mutex_);

  Mutex stop_mutex_;  // one Stop joins, the others wait for it
  std::thread thread_ ABSL_GUARDED_BY(stop_mutex_);
};

absl::StatusOr<std::vector<SequenceId>> Engine::Impl::Submit(std::vector<Request> requests) {
  int64_t num_tokens = 0;
  for (const Request& request : requests) {
    SLUICE_RETURN_IF_ERROR(ValidateRequest(request, options_));
    num_tokens += int64_t(request.prompt_tokens.size());
  }
  const int64_t num_requests = int64_t(requests.size());
  const int64_t now_ns = clock_.NowNs();
  std::vector<SequenceId> ids;
  ids.reserve(requests.size());
  {
    MutexLock lock(&mutex_);
    SLUICE_RETURN_IF_ERROR(CheckOpen());
    SLUICE_RETURN_IF_ERROR(CheckQueue(num_requests, num_tokens));
    const SequenceId first_sibling = next_id_;
    for (Request& request : requests) {
      ids.push_back(next_id_);
      inbox_.arrivals.push_back(Arrival{
          .id = next_id_++, .first_sibling = first_sibling, .arrival_ns = now_ns, .request = std::move(request)});
    }
    inbox_.num_tokens += num_tokens;
    stats_.num_waiting += int32_t(num_requests);
    stats_.num_waiting_tokens += num_tokens;
    if (!stats_.busy && num_requests > 0) {
      stats_.busy = true;
      stats_.last_progress_ns = now_ns;
    }
  }
  wake_.NotifyOne();
  return ids;
}

absl::Status Engine::Impl::CheckOpen() const {
  if (!stats_.fault.ok()) return stats_.fault;
  if (stopping_) return WithReason(absl::UnavailableError("the engine has stopped"), kReasonStopped);
  if (stats_.draining) return DrainingError();
  return absl::OkStatus();
}

absl::Status Engine::Impl::CheckQueue(int64_t num_requests, int64_t num_tokens) const {
  // What would never be taken otherwise is taken by an empty queue.
  const int64_t num_waiting = stats_.num_waiting;
  if (num_waiting == 0) return absl::OkStatus();
  const QueueDrain drain = stats_.queue_drain;
  if (const int64_t excess = num_waiting + num_requests - options_.max_queued_requests; excess > 0) {
    return QueueFullError(
        absl::StrCat(num_waiting, " requests are waiting; with ", num_requests,
                     " more they would be over max_queued_requests (", options_.max_queued_requests, ")"),
        num_waiting, excess, drain);
  }
  if (const int64_t excess = stats_.num_waiting_tokens + num_tokens - options_.max_queued_tokens; excess > 0) {
    return QueueFullError(
        absl::StrCat(stats_.num_waiting_tokens, " tokens are waiting; with ", num_tokens,
                     " more they would be over max_queued_tokens (", options_.max_queued_tokens, ")"),
        num_waiting, excess * num_waiting / std::max<int64_t>(stats_.num_waiting_tokens, 1) + 1, drain);
  }
  if (drain.admissions_per_second == 0 || options_.max_queue_seconds == 0) return absl::OkStatus();
  const absl::Duration limit = absl::Seconds(options_.max_queue_seconds);
  const absl::Duration wait = TimeToShrink(num_waiting + 1, num_waiting + 1, drain);
  if (wait <= limit) return absl::OkStatus();
  const double pace = double(num_waiting + 1) / absl::ToDoubleSeconds(wait);
  const absl::Status status =
      absl::ResourceExhaustedError(absl::StrCat(num_waiting, " requests are waiting, and the queue moves by ",
                                                absl::SixDigits(pace), " in a second; another one would wait for about ",
                                                absl::FormatDuration(absl::Ceil(wait, absl::Seconds(1))),
                                                ", longer than max_queue_seconds (", options_.max_queue_seconds, ")"));
  return WithRetryAfter(WithReason(status, kReasonQueueWaitTooLong), SensibleRetry(wait - limit));
}

void Engine::Impl::Cancel(SequenceId id, FinishReason reason) {
  SLUICE_CHECK(reason != FinishReason::kNone);
  {
    MutexLock lock(&mutex_);
    if (stopping_) return;
    inbox_.cancellations.push_back(Cancellation{.id = id, .reason = reason});
  }
  wake_.NotifyOne();
}

EngineStats Engine::Impl::Stats() const {
  MutexLock lock(&mutex_);
  return stats_;
}

void Engine::Impl::Drain() {
  {
    MutexLock lock(&mutex_);
    stats_.draining = true;
    inbox_.drain = true;
  }
  wake_.NotifyOne();
}

void Engine::Impl::Stop() {
  MutexLock stop_lock(&stop_mutex_);
  if (!thread_.joinable()) return;
  SLUICE_CHECK(thread_.get_id() != std::this_thread::get_id());
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
  }
  wake_.NotifyOne();
  thread_.join();
}

void Engine::Impl::Loop() {
  while (TakeInbox()) {
    ApplyInbox();
    if (has_work() && fault_.ok()) Step();
    if (!fault_.ok()) FinishAll(FinishReason::kError, fault_);
  }
  ApplyInbox();
  while (scheduler_.num_steps_in_flight() > 0) CommitStep();
  FinishAll(FinishReason::kCancelled, absl::OkStatus());
}

// Waits while there is nothing to do: whoever is waiting for blocks waits for somebody who runs, so as long as there
// are sequences there is a step to make. False once the engine is to stop.
bool Engine::Impl::TakeInbox() {
  MutexLock lock(&mutex_);
  while (!has_work() && inbox_.empty() && !stopping_) wake_.Wait(&mutex_);
  std::swap(inbox_, taken_);
  return !stopping_;
}

void Engine::Impl::ApplyInbox() {
  const int64_t now_ns = clock_.NowNs();
  for (Arrival& a : taken_.arrivals) scheduler_.Add(a.id, a.first_sibling, std::move(a.request), a.arrival_ns);
  for (const Cancellation& c : taken_.cancellations) scheduler_.Finish(c.id, c.reason, now_ns, &outputs_);
  if (taken_.drain) {
    const auto never_ran = [&](const Sequence& s) { return !scheduler_.any_sibling_ran(s); };
    scheduler_.FinishIf(never_ran, FinishReason::kError, DrainingError(), now_ns, &outputs_);
  }
  scheduler_.FinishExpired(now_ns, &outputs_);
  if (!taken_.empty() || !outputs_.empty()) PublishStats();
  taken_.Clear();
  Deliver(StepStats());
}

// A device that launches asynchronously has one step before it while the next is launched; the result of the older is waited for
// only then.
void Engine::Impl::Step() {
  const bool launched = scheduler_.has_sequences() && LaunchStep();
  if (!fault_.ok()) return;
  const int32_t keep_in_flight = launched && runner_->launches_async() ? 1 : 0;
  if (scheduler_.num_steps_in_flight() > keep_in_flight) CommitStep();
}

bool Engine::Impl::LaunchStep() {
  const StepPlan* plan = scheduler_.Plan(clock_.NowNs());
  if (plan == nullptr) return false;
  PublishStats();  // a step is long: whoever was admitted no longer waits
  const absl::Status status = runner_->Launch(*plan);
  if (!status.ok()) GiveUp(status);
  return status.ok();
}

void Engine::Impl::CommitStep() {
  absl::StatusOr<StepResult> result = runner_->Take();
  if (!result.ok()) return GiveUp(result.status());
  const int64_t end_ns = clock_.NowNs();
  const StepStats stats = scheduler_.Commit(*std::move(result), end_ns, &outputs_);
#ifndef NDEBUG
  scheduler_.CheckInvariants();
#endif
  ++num_steps_;
  PublishStats(end_ns);
  Deliver(stats);
}

void Engine::Impl::GiveUp(const absl::Status& device_fault) {
  fault_ =
      WithReason(absl::InternalError(absl::StrCat("the device failed: ", device_fault.message())), kReasonDeviceFault);
  LogError(absl::StrCat("the engine stops after a device fault: ", device_fault.ToString()));
  scheduler_.AbandonSteps();
}

void Engine::Impl::FinishAll(FinishReason reason, const absl::Status& error) {
  scheduler_.FinishIf([](const Sequence&) { return true; }, reason, error, clock_.NowNs(), &outputs_);
  PublishStats();
  Deliver(StepStats());
}

void Engine::Impl::PublishStats(std::optional<int64_t> progress_ns) {
  const BlockPool& pool = scheduler_.pool();
  // No block may outlive its sequence: a leak is found as soon as the engine is idle.
  SLUICE_CHECK(scheduler_.has_sequences() || pool.num_live() == 0);
  MutexLock lock(&mutex_);
  stats_.num_running = scheduler_.num_running();
  stats_.num_waiting = scheduler_.num_waiting() + int32_t(inbox_.arrivals.size());
  stats_.num_waiting_tokens = scheduler_.num_waiting_tokens() + inbox_.num_tokens;
  stats_.queue_drain = scheduler_.queue_drain();
  stats_.kv_blocks_live = pool.num_live();
  stats_.kv_blocks_cached = pool.num_cached();
  stats_.kv_blocks_free = pool.num_free();
  stats_.kv_blocks_total = pool.num_total();
  stats_.num_steps = num_steps_;
  stats_.num_preemptions = scheduler_.num_preemptions();
  stats_.num_prompt_tokens = scheduler_.num_prompt_tokens();
  stats_.num_generation_tokens = scheduler_.num_generation_tokens();
  stats_.num_prefix_queried_tokens = scheduler_.prefix_cache().num_queried_tokens();
  stats_.num_prefix_hit_tokens = scheduler_.prefix_cache().num_hit_tokens();
  if (progress_ns.has_value()) stats_.last_progress_ns = *progress_ns;
  stats_.busy = scheduler_.has_sequences() || !inbox_.arrivals.empty();
  stats_.fault = fault_;
}

// The figures that a final output speaks of are published before it: whoever has seen a sequence end and then asks
// for Stats finds it counted.
void Engine::Impl::Deliver(const StepStats& stats) {
  if (outputs_.empty() && stats.num_sequences == 0) return;
  sink_->OnStep(stats, std::exchange(outputs_, {}));
}

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(const EngineOptions& options, std::unique_ptr<StepRunner> runner,
                                                       TokenSink* sink, const Clock& clock) {
  SLUICE_CHECK(runner != nullptr && sink != nullptr);
  SLUICE_RETURN_IF_ERROR(ValidateEngineOptions(options));
  return absl::WrapUnique(new Engine(std::make_unique<Impl>(options, std::move(runner), sink, clock)));
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

absl::StatusOr<std::vector<SequenceId>> Engine::Submit(std::vector<Request> requests) {
  return impl_->Submit(std::move(requests));
}
void Engine::Cancel(SequenceId id, FinishReason reason) { impl_->Cancel(id, reason); }
EngineStats Engine::Stats() const { return impl_->Stats(); }
std::string Engine::DescribeWorkers() const { return impl_->DescribeWorkers(); }
void Engine::Drain() { impl_->Drain(); }
void Engine::Stop() { impl_->Stop(); }

}  // namespace sluice
