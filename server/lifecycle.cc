#include "server/lifecycle.h"

#include <pthread.h>
#include <signal.h>

#include <cstdlib>
#include <thread>

#include "absl/strings/str_cat.h"
#include "engine/base/log.h"
#include "server/memory_return.h"
#include "server/process_stats.h"

namespace sluice {
namespace {

constexpr std::chrono::milliseconds kWatchInterval{250};
constexpr int kMemoryIntervals = 4;  // of them between looks at memory
constexpr std::chrono::seconds kForceAfter{5};
// For Server::Stop: its last messages, and a step that is running.
constexpr std::chrono::seconds kStopTime{5};

[[noreturn]] void Exit(int code) {
  FlushLog();
  std::_Exit(code);
}

sigset_t EndingSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  return set;
}

// Ends the process should the server not stop within kStopTime.
void StopOrExit(Server* server) {
  Mutex mutex;
  CondVar changed;
  bool stopped = false;
  std::thread guard([&] {
    const auto deadline = std::chrono::steady_clock::now() + kStopTime;
    MutexLock lock(&mutex);
    while (!stopped) {
      if (changed.WaitUntil(&mutex, deadline)) continue;
      if (stopped) return;
      LogError(absl::StrCat("the engine does not stop: ", server->DescribeWorkers()));
      Exit(1);
    }
  });
  server->Stop();
  {
    MutexLock lock(&mutex);
    stopped = true;
  }
  changed.NotifyAll();
  guard.join();
}

}  // namespace

SignalWatcher::SignalWatcher() {
  const sigset_t set = EndingSignals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);  // inherited by every thread to come
  signal(SIGPIPE, SIG_IGN);
  thread_ = std::thread([this] { Loop(); });
}

SignalWatcher::~SignalWatcher() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
  }
  thread_.join();
}

void SignalWatcher::Loop() {
  const sigset_t set = EndingSignals();
  const timespec interval{0, 100'000'000};
  std::chrono::steady_clock::time_point force_at = std::chrono::steady_clock::time_point::max();
  while (true) {
    const int signal = sigtimedwait(&set, nullptr, &interval);
    MutexLock lock(&mutex_);
    if (stopping_) return;
    const auto now = std::chrono::steady_clock::now();
    if (signal > 0) {
      if (!armed_) Exit(128 + signal);
      last_signal_ = signal;
      if (++count_ == 2) force_at = now + kForceAfter;
      changed_.NotifyAll();
    }
    if (now >= force_at) Exit(128 + last_signal_);
  }
}

void SignalWatcher::Arm() {
  MutexLock lock(&mutex_);
  armed_ = true;
}

int SignalWatcher::count() const {
  MutexLock lock(&mutex_);
  return count_;
}

int SignalWatcher::last_signal() const {
  MutexLock lock(&mutex_);
  return last_signal_;
}

bool SignalWatcher::WaitFor(int count, std::chrono::milliseconds timeout) const {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  MutexLock lock(&mutex_);
  while (count_ < count) {
    if (!changed_.WaitUntil(&mutex_, deadline)) return count_ >= count;
  }
  return true;
}

int RunUntilSignal(Server* server, const LifecycleOptions& options, const SignalWatcher& signals) {
  MemoryReturn memory_return;
  int intervals = 0;
  while (!signals.WaitFor(1, kWatchInterval)) {
    if (absl::Status fault = server->CheckEngine(); !fault.ok()) {
      LogError(absl::StrCat("the engine has failed: ", fault.message(), "; ", server->DescribeWorkers()));
      server->FailCalls(fault);
      StopOrExit(server);
      return 1;
    }
    if (++intervals % kMemoryIntervals != 0) continue;
    if (memory_return.Due(FreeHeapBytes(), ResidentBytes())) ReturnFreeHeap();
  }
  LogInfo("draining; a second signal stops at once");
  server->BeginLeaving();
  signals.WaitFor(2, options.drain_delay);
  server->BeginDrain();
  const auto hurry = [&] {
    server->CheckEngine().IgnoreError();  // for its health; one that dies ends its calls itself
    return signals.count() >= 2;
  };
  if (!server->WaitForCalls(options.drain_timeout, hurry)) LogWarning("calls were cancelled before they finished");
  const absl::Status fault = server->CheckEngine();
  if (!fault.ok()) LogError(absl::StrCat("the engine has failed: ", fault.message()));
  StopOrExit(server);
  LogInfo("stopped");
  if (signals.count() >= 2) return 128 + signals.last_signal();
  return fault.ok() ? 0 : 1;
}

}  // namespace sluice
