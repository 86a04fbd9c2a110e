// From ready to exit: signals, watchdog, drain.
#pragma once

#include <chrono>
#include <thread>

#include "engine/base/mutex.h"
#include "server/options.h"
#include "server/server.h"

namespace sluice {

// Takes SIGTERM and SIGINT off the process: make one before any other thread exists. One per process. Until Arm, a
// signal ends the process at once; after it, the first two are counted, and the process ends by force five seconds
// after the second, should it still be there.
class SignalWatcher {
 public:
  SignalWatcher();
  ~SignalWatcher();

  void Arm() ABSL_LOCKS_EXCLUDED(mutex_);
  int count() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Of the last one; 0 if there was none.
  int last_signal() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Until there have been `count` signals, at most `timeout`. True if there have.
  bool WaitFor(int count, std::chrono::milliseconds timeout) const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Loop() ABSL_LOCKS_EXCLUDED(mutex_);

  mutable Mutex mutex_;
  mutable CondVar changed_;
  bool armed_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  int count_ ABSL_GUARDED_BY(mutex_) = 0;
  int last_signal_ ABSL_GUARDED_BY(mutex_) = 0;
  std::thread thread_;
};

// Serves until a signal, then drains: not ready -> (drain_delay) -> nothing new -> running calls end (drain_timeout) ->
// stop. A second signal skips the waits. Returns the exit code: 0, 128 + the second signal, or 1 if the engine failed,
// be it while draining. An engine that does not come back from its step, when it is to stop, is not waited for longer than
// a few seconds: the process ends at once, with 1.
int RunUntilSignal(Server* server, const LifecycleOptions& options, const SignalWatcher& signals);

}  // namespace sluice
