// Whether the server is alive and ready, for probes: answered from memory, never by asking the engine.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "engine/base/mutex.h"

namespace sluice {

// Thread-safe.
class HealthState {
 public:
  enum class Phase {
    kLoading,   // the model is being read
    kReady,     // calls are answered
    kLeaving,   // as kReady, but traffic is asked to go elsewhere
    kDraining,  // nothing new is taken
    kFailed,    // the engine has given up
    kStopped,   // the server goes away: watchers are to end
  };

  Phase phase() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Phases only go forward; an earlier one than the present is ignored.
  void Advance(Phase phase) ABSL_LOCKS_EXCLUDED(mutex_);

  // Ready to take calls. Also the state of "", "readiness" and every service.
  bool Ready() const ABSL_LOCKS_EXCLUDED(mutex_);
  // The process makes progress: from the start, unless stalled or failed. The state of "liveness".
  bool Live() const ABSL_LOCKS_EXCLUDED(mutex_);
  // There is work, and no step has ended for too long.
  void SetStalled(bool stalled) ABSL_LOCKS_EXCLUDED(mutex_);

  // Clients can, or cannot, connect. Not ready while they cannot.
  void SetConnectable(bool connectable) ABSL_LOCKS_EXCLUDED(mutex_);

  // For a service name of the health protocol; nullopt: there is no such service.
  std::optional<bool> Serving(absl::string_view service) const ABSL_LOCKS_EXCLUDED(mutex_);

  // `on_change` is called after every change, without locks, from the thread that made it. Returns a handle.
  int Subscribe(std::function<void()> on_change) ABSL_LOCKS_EXCLUDED(mutex_);
  // May return while a call of on_change is still running.
  void Unsubscribe(int handle) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  bool ReadyLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return phase_ == Phase::kReady && !stalled_ && connectable_;
  }
  void Tell() ABSL_LOCKS_EXCLUDED(mutex_);

  mutable Mutex mutex_;
  Phase phase_ ABSL_GUARDED_BY(mutex_) = Phase::kLoading;
  bool stalled_ ABSL_GUARDED_BY(mutex_) = false;
  bool failed_ ABSL_GUARDED_BY(mutex_) = false;
  bool connectable_ ABSL_GUARDED_BY(mutex_) = true;
  int next_handle_ ABSL_GUARDED_BY(mutex_) = 1;
  std::map<int, std::function<void()>> subscribers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice
