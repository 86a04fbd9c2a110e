// A small pool of threads for what a request needs before the engine sees it (chat template, tokenising, checks): too
// slow for gRPC's own few threads.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "engine/base/mutex.h"

namespace sluice {

class Ingress {
 public:
  // At most so many tasks, and tasks over so many bytes of requests together, wait at a time.
  Ingress(int num_threads, int64_t max_tasks, int64_t max_bytes);
  ~Ingress();  // Stop()

  // Runs `task` on one of the threads. RESOURCE_EXHAUSTED: too much is waiting. UNAVAILABLE: stopped. Thread-safe.
  absl::Status Post(int64_t bytes, std::function<void()> task) ABSL_LOCKS_EXCLUDED(mutex_);

  // Runs what is waiting and ends the threads. Idempotent; one thread only.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Task {
    int64_t bytes = 0;
    std::function<void()> run;
  };

  void Loop() ABSL_LOCKS_EXCLUDED(mutex_);

  const int64_t max_tasks_;
  const int64_t max_bytes_;

  Mutex mutex_;
  CondVar wake_;
  std::deque<Task> tasks_ ABSL_GUARDED_BY(mutex_);
  int64_t waiting_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;

  std::vector<std::thread> threads_;  // of the owner
};

}  // namespace sluice
