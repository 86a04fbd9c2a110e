#include "server/calls/ingress.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/retry_after.h"
#include "server/calls/status.h"

namespace sluice {
namespace {

constexpr int64_t kNsPerByte = 1000;
// Nobody is put off for longer, whatever his tasks have taken.
constexpr int64_t kMaxUsedNs = 30'000'000'000;
// Clients are forgotten once so many are known that have nothing waiting and have used nothing lately.
constexpr size_t kMaxIdleClients = 1024;
// Older ones than the last so many tasks say little of the pace.
constexpr int32_t kTasksOfPace = 64;

}  // namespace

Ingress::Ingress(int num_threads, int64_t max_tasks, int64_t max_bytes, const Clock& clock)
    : max_tasks_(max_tasks), max_bytes_(max_bytes), max_long_(std::max(1, num_threads - 1)), clock_(clock), pace_(kTasksOfPace) {
  for (int i = 0; i < num_threads; ++i) threads_.emplace_back([this] { Loop(); });
}

Ingress::~Ingress() { Stop(); }

int64_t Ingress::UsedBy(const Client& client, int64_t now_ns) {
  return std::clamp<int64_t>(client.used_ns - (now_ns - client.used_at_ns), 0, kMaxUsedNs);
}

void Ingress::Forget(int64_t now_ns) {
  if (clients_.size() <= kMaxIdleClients + short_.size() + long_.size()) return;
  absl::erase_if(clients_, [now_ns](const auto& entry) {
    return entry.second.waiting_tasks == 0 && UsedBy(entry.second, now_ns) == 0;
  });
}

absl::Status Ingress::Post(Work work, std::function<void()> task) {
  const int64_t now_ns = clock_.NowNs();
  {
    MutexLock lock(&mutex_);
    if (stopping_) {
      return CallError(absl::StatusCode::kUnavailable, kReasonStopped, "the server is shutting down");
    }
    Forget(now_ns);
    const int64_t num_waiting = int64_t(short_.size() + long_.size());
    Client& client = clients_[work.peer];
    // One request of any size is taken when nothing else waits.
    const bool room = client.waiting_tasks + 1 <= max_tasks_ - num_waiting &&
                      client.waiting_bytes + work.bytes <= max_bytes_ - waiting_bytes_;
    if (num_waiting > 0 && !room) return Full(work, client);
    ++client.waiting_tasks;
    client.waiting_bytes += work.bytes;
    waiting_bytes_ += work.bytes;
    const int64_t due_ns = now_ns + kNsPerByte * work.bytes + UsedBy(client, now_ns);
    const bool is_long = work.bytes > kShortBytes || !work.by_bytes_alone;
    Queue& queue = is_long ? long_ : short_;
    queue.emplace(std::pair(due_ns, num_posted_++), Task{std::move(work.peer), work.bytes, is_long, std::move(task)});
  }
  wake_.NotifyAll();  // one of them may not be allowed to take it
  return absl::OkStatus();
}

absl::Status Ingress::Full(const Work& work, const Client& client) const {
  const int64_t num_waiting = int64_t(short_.size() + long_.size());
  const absl::Status status = CallError(absl::StatusCode::kResourceExhausted, kReasonQueueFull,
                                        absl::StrCat(num_waiting, " requests of ", waiting_bytes_,
                                                     " bytes are waiting to be read, ", client.waiting_tasks,
                                                     " of this connection; try again later"));
  const QueueDrain drain = pace_.drain();
  if (drain.admissions_per_second == 0) return status;
  // As if none of those that go first were the client's own, which would make room twice.
  const int64_t excess_tasks = client.waiting_tasks + 1 + num_waiting - max_tasks_;
  const int64_t excess_bytes = client.waiting_bytes + work.bytes + waiting_bytes_ - max_bytes_;
  const double bytes_per_task = std::max(1.0, double(waiting_bytes_) / double(num_waiting));
  const int64_t tasks_of_bytes = int64_t(std::ceil(double(std::max<int64_t>(0, excess_bytes)) / bytes_per_task));
  const int64_t excess = std::clamp<int64_t>(std::max(excess_tasks, tasks_of_bytes), 1, num_waiting);
  return WithRetryAfter(status, SensibleRetry(TimeToShrink(num_waiting, excess, drain)));
}

void Ingress::Stop() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
  }
  wake_.NotifyAll();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

Ingress::Queue* Ingress::Next() {
  const bool long_allowed = !long_.empty() && num_long_running_ < max_long_;
  if (short_.empty()) return long_allowed ? &long_ : nullptr;
  return long_allowed && long_.begin()->first < short_.begin()->first ? &long_ : &short_;
}

void Ingress::Loop() {
  while (true) {
    Task task;
    int64_t begin_ns = 0;
    {
      MutexLock lock(&mutex_);
      Queue* queue = nullptr;
      while ((queue = Next()) == nullptr) {
        if (stopping_ && long_.empty()) return;
        wake_.Wait(&mutex_);
      }
      task = std::move(queue->begin()->second);
      queue->erase(queue->begin());
      waiting_bytes_ -= task.bytes;
      Client& client = clients_[task.peer];
      --client.waiting_tasks;
      client.waiting_bytes -= task.bytes;
      if (task.is_long) ++num_long_running_;
      begin_ns = clock_.NowNs();
      pace_.Observe(begin_ns, 1, 0, int32_t(short_.size() + long_.size()));
    }
    task.run();
    task.run = nullptr;  // the request goes before the next one comes
    const int64_t end_ns = clock_.NowNs();
    {
      MutexLock lock(&mutex_);
      Client& client = clients_[task.peer];
      client.used_ns = UsedBy(client, end_ns) + (end_ns - begin_ns);
      client.used_at_ns = end_ns;
      if (!task.is_long) continue;
      --num_long_running_;
    }
    wake_.NotifyAll();
  }
}

}  // namespace sluice
