#include "server/ingress.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/status.h"

namespace sluice {

Ingress::Ingress(int num_threads, int64_t max_tasks, int64_t max_bytes) : max_tasks_(max_tasks), max_bytes_(max_bytes) {
  for (int i = 0; i < num_threads; ++i) threads_.emplace_back([this] { Loop(); });
}

Ingress::~Ingress() { Stop(); }

absl::Status Ingress::Post(int64_t bytes, std::function<void()> task) {
  {
    MutexLock lock(&mutex_);
    if (stopping_) {
      return CallError(absl::StatusCode::kUnavailable, kReasonStopped, "the server is shutting down");
    }
    // One request of any size is taken when nothing else waits.
    if (!tasks_.empty() && (int64_t(tasks_.size()) >= max_tasks_ || waiting_bytes_ + bytes > max_bytes_)) {
      return CallError(absl::StatusCode::kResourceExhausted, kReasonQueueFull,
                       absl::StrCat(tasks_.size(), " requests of ", waiting_bytes_,
                                    " bytes are waiting to be read; try again later"));
    }
    waiting_bytes_ += bytes;
    tasks_.push_back({bytes, std::move(task)});
  }
  wake_.NotifyOne();
  return absl::OkStatus();
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

void Ingress::Loop() {
  while (true) {
    Task task;
    {
      MutexLock lock(&mutex_);
      while (tasks_.empty() && !stopping_) wake_.Wait(&mutex_);
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
      waiting_bytes_ -= task.bytes;
    }
    task.run();
  }
}

}  // namespace sluice
