// A small pool of threads for what a request needs before the engine sees it (chat template, tokenising, checks): too
// slow for gRPC's own few threads.
//
// Order. A task is due at its arrival, plus the time that its bytes are thought to take (a microsecond each), plus the
// time that its client's tasks have taken lately (forgotten as fast as time passes). What is due first runs first. So
// the short come before the long, and a client that costs much after one that costs little; but nobody waits for tasks
// that arrive after his own is due.
//
// Threads. Long tasks, and those whose time their bytes do not tell, never take the last thread: what is short is not
// held up by what already runs.
//
// Room. A client may have as much waiting as there is room left: however much one sends, others find room.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "engine/base/clock.h"
#include "engine/base/mutex.h"
#include "engine/scheduler/queue_time.h"

namespace sluice {

class Ingress {
 public:
  // What is known of a task beforehand.
  struct Work {
    std::string peer;            // whose it is: the connection
    int64_t bytes = 0;           // of its request
    bool by_bytes_alone = true;  // no template, for one, which may take long over a few words
  };

  // Tasks over more bytes are long.
  static constexpr int64_t kShortBytes = 64 << 10;

  // At most so many tasks, and tasks over so many bytes of requests together, wait at a time. `clock` outlives it.
  Ingress(int num_threads, int64_t max_tasks, int64_t max_bytes, const Clock& clock = Clock::Real());
  ~Ingress();  // Stop()

  // Runs `task` on one of the threads. RESOURCE_EXHAUSTED: too much is waiting, with the time after which there should be
  // room (engine/retry_after.h) once the pace of the threads is known. UNAVAILABLE: stopped. Thread-safe.
  absl::Status Post(Work work, std::function<void()> task) ABSL_LOCKS_EXCLUDED(mutex_);

  // Runs what is waiting and ends the threads. Idempotent; one thread only.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Task {
    std::string peer;
    int64_t bytes = 0;
    bool is_long = false;
    std::function<void()> run;
  };
  // By the time when they are due, then by arrival.
  using Queue = std::map<std::pair<int64_t, uint64_t>, Task>;

  struct Client {
    int64_t waiting_tasks = 0, waiting_bytes = 0;
    int64_t used_ns = 0;  // as it was at `used_at_ns`
    int64_t used_at_ns = 0;
  };

  void Loop() ABSL_LOCKS_EXCLUDED(mutex_);
  // The queue whose first task is to run next; null if none may.
  Queue* Next() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // `work` of `client` finds no room.
  absl::Status Full(const Work& work, const Client& client) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static int64_t UsedBy(const Client& client, int64_t now_ns);
  void Forget(int64_t now_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int64_t max_tasks_;
  const int64_t max_bytes_;
  const int max_long_;  // that run at a time
  const Clock& clock_;

  Mutex mutex_;
  CondVar wake_;
  Queue short_ ABSL_GUARDED_BY(mutex_), long_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, Client> clients_ ABSL_GUARDED_BY(mutex_);
  QueuePace pace_ ABSL_GUARDED_BY(mutex_);  // a task is admitted when a thread takes it
  uint64_t num_posted_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t waiting_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int num_long_running_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;

  std::vector<std::thread> threads_;  // of the owner
};

}  // namespace sluice
