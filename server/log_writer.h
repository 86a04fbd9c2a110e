// Log lines on their way to stderr, by a thread of their own: who logs never waits for whoever reads them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "engine/base/log.h"
#include "engine/base/mutex.h"

namespace sluice {

class LogWriter final : public LogSink {
 public:
  static constexpr size_t kMaxWaitingBytes = 1 << 20;

  // Lines go to `fd`; at most `max_waiting_bytes` of them wait, more are dropped. When there is room again, a line says
  // how many were.
  explicit LogWriter(int fd, size_t max_waiting_bytes = kMaxWaitingBytes);
  // Flush. A thread that is stuck in a write is left behind.
  ~LogWriter() override;

  void Write(absl::string_view line) override ABSL_LOCKS_EXCLUDED(state_->mutex);
  // Waits a second at most.
  void Flush() override;

 private:
  // Shared with the thread, which may outlive the object.
  struct State {
    int fd = -1;
    size_t max_waiting_bytes = 0;
    std::atomic<size_t> unwritten_bytes{0};

    Mutex mutex;
    CondVar changed;
    std::string waiting ABSL_GUARDED_BY(mutex);
    int64_t num_dropped ABSL_GUARDED_BY(mutex) = 0;  // that no line has told of
    bool stopping ABSL_GUARDED_BY(mutex) = false;
  };

  static void Loop(const std::shared_ptr<State>& state);

  const std::shared_ptr<State> state_;
};

// Lines in the queue come out before the process dies by SIGABRT, SIGSEGV, SIGBUS, SIGILL or SIGFPE. Signals that
// somebody else handles are left alone.
void FlushLogOnCrash();

}  // namespace sluice
