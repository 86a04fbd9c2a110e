#include "server/calls/delivery.h"

#include <chrono>
#include <utility>

#include "engine/base/check.h"
#include "server/calls/calls.h"
#include "server/calls/status.h"

namespace sluice {
namespace {

// Between two looks for calls that came to an abandoned engine.
constexpr std::chrono::milliseconds kLookForCalls{20};

}  // namespace

Delivery::Delivery(std::string model, Calls* calls, Metrics* metrics, const Clock& clock, int64_t max_queued_bytes)
    : model_(std::move(model)), calls_(calls), metrics_(metrics), clock_(clock), max_queued_bytes_(max_queued_bytes) {
  thread_ = std::thread([this] { Loop(); });
}

Delivery::~Delivery() { Stop(); }

void Delivery::OnStep(const StepStats& stats, std::vector<SequenceOutput> outputs) {
  const int64_t now_ns = clock_.NowNs();
  std::vector<std::shared_ptr<Call::Choice>> overflowing;
  {
    MutexLock lock(&mutex_);
    const bool was_empty = queued_.all == 0;
    Bytes step_bytes;
    for (SequenceOutput& output : outputs) {
      const Bytes bytes = SizeOf(output);
      const bool room = queued_.all + step_bytes.all + bytes.all <= max_queued_bytes_ &&
                        (bytes.logprobs == 0 ||
                         queued_.logprobs + step_bytes.logprobs + bytes.logprobs <= max_queued_bytes_ / 2);
      if (was_empty || room) {
        step_bytes.all += bytes.all;
        step_bytes.logprobs += bytes.logprobs;
        continue;
      }
      // Its last, whatever the engine says of it later.
      overflowing.push_back(std::static_pointer_cast<Call::Choice>(output.context));
      SequenceOutput last;
      last.id = output.id;
      last.context = std::move(output.context);
      last.finish_reason = FinishReason::kError;
      last.error = OutputOverflowError(max_queued_bytes_);
      last.timings = output.timings;
      output = std::move(last);
    }
    queued_.all += step_bytes.all;
    queued_.logprobs += step_bytes.logprobs;
    steps_.push_back({now_ns, step_bytes, stats, std::move(outputs)});
  }
  wake_.NotifyOne();
  for (const auto& choice : overflowing) {
    choice->call->Stop(FinishReason::kError, OutputOverflowError(max_queued_bytes_));
  }
}

Delivery::Bytes Delivery::SizeOf(const SequenceOutput& output) {
  Bytes bytes;
  for (const auto* entries : {&output.logprobs, &output.prompt_logprobs}) {
    for (const TokenLogprobs& entry : *entries) {
      bytes.logprobs += int64_t(sizeof entry + entry.top.size() * sizeof(TokenLogprob));
    }
  }
  bytes.all = bytes.logprobs + int64_t(sizeof output + output.tokens.size() * sizeof(int32_t));
  return bytes;
}

int64_t Delivery::queued_bytes() const {
  MutexLock lock(&mutex_);
  return queued_.all;
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
  queued_.all -= step->bytes.all;
  queued_.logprobs -= step->bytes.logprobs;
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
