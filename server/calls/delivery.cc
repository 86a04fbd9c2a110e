#include "server/calls/delivery.h"

#include <chrono>
#include <utility>

#include "engine/base/check.h"
#include "server/calls/calls.h"

namespace sluice {
namespace {

// Between two looks for calls that came to an abandoned engine.
constexpr std::chrono::milliseconds kLookForCalls{20};

}  // namespace

Delivery::Delivery(std::string model, Calls* calls, Metrics* metrics, const Clock& clock)
    : model_(std::move(model)), calls_(calls), metrics_(metrics), clock_(clock) {
  thread_ = std::thread([this] { Loop(); });
}

Delivery::~Delivery() { Stop(); }

void Delivery::OnStep(const StepStats& stats, std::vector<SequenceOutput> outputs) {
  const int64_t now_ns = clock_.NowNs();
  {
    MutexLock lock(&mutex_);
    steps_.push_back({now_ns, stats, std::move(outputs)});
  }
  wake_.NotifyOne();
}

void Delivery::Stop() {
  if (!thread_.joinable()) return;
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
  }
  wake_.NotifyOne();
  thread_.join();
}

void Delivery::Abandon(absl::Status status) {
  SLUICE_CHECK(!status.ok());
  {
    MutexLock lock(&mutex_);
    if (abandoned_.ok()) abandoned_ = std::move(status);
  }
  wake_.NotifyOne();
}

// False when there will be none that is to be delivered.
bool Delivery::NextStep(Step* step) {
  MutexLock lock(&mutex_);
  while (steps_.empty() && !stopping_ && abandoned_.ok()) wake_.Wait(&mutex_);
  if (steps_.empty() || !abandoned_.ok()) return false;
  *step = std::move(steps_.front());
  steps_.pop_front();
  return true;
}

void Delivery::Loop() {
  for (Step step; NextStep(&step);) {
    metrics_->Observe(model_, step.stats);
    int64_t num_tokens = 0;
    for (const SequenceOutput& output : step.outputs) num_tokens += int64_t(output.tokens.size());
    generation_rate_.Add(step.end_ns, num_tokens);
    prompt_rate_.Add(step.end_ns, step.stats.num_prefill_tokens);
    for (SequenceOutput& output : step.outputs) {
      const auto choice = std::static_pointer_cast<Call::Choice>(output.context);
      Call* const call = choice->call;
      if (call->Take(choice->index, std::move(output), step.end_ns)) calls_->End(call, call->Complete());
    }
  }
  EndAbandonedCalls();
}

void Delivery::EndAbandonedCalls() {
  while (true) {
    absl::Status status;
    {
      MutexLock lock(&mutex_);
      status = abandoned_;
    }
    if (status.ok()) return;
    for (const std::shared_ptr<Call>& call : calls_->All()) {
      if (!call->submitted()) continue;  // ingress ends it, or will have submitted it
      call->Abandon(status, clock_.NowNs());
      calls_->End(call.get(), call->Complete());
    }
    MutexLock lock(&mutex_);
    if (stopping_) return;
    wake_.WaitUntil(&mutex_, std::chrono::steady_clock::now() + kLookForCalls);
  }
}

}  // namespace sluice
