#include "server/calls/health_state.h"

#include <utility>
#include <vector>

namespace sluice {
namespace {

constexpr absl::string_view kPublicServices[] = {"sluice.v1.GenerationService", "sluice.v1.TokenizerService",
                                                 "sluice.v1.ModelService"};

}  // namespace

HealthState::Phase HealthState::phase() const {
  MutexLock lock(&mutex_);
  return phase_;
}

void HealthState::Advance(Phase phase) {
  {
    MutexLock lock(&mutex_);
    if (phase <= phase_) return;
    phase_ = phase;
    if (phase == Phase::kFailed) failed_ = true;
  }
  Tell();
}

bool HealthState::Ready() const {
  MutexLock lock(&mutex_);
  return ReadyLocked();
}

bool HealthState::Live() const {
  MutexLock lock(&mutex_);
  return !stalled_ && !failed_;
}

void HealthState::SetStalled(bool stalled) {
  {
    MutexLock lock(&mutex_);
    if (stalled == stalled_) return;
    stalled_ = stalled;
  }
  Tell();
}

void HealthState::SetConnectable(bool connectable) {
  {
    MutexLock lock(&mutex_);
    if (connectable == connectable_) return;
    connectable_ = connectable;
  }
  Tell();
}

std::optional<bool> HealthState::Serving(absl::string_view service) const {
  if (service == "liveness") return Live();
  if (service.empty() || service == "readiness") return Ready();
  for (absl::string_view known : kPublicServices) {
    if (service == known) return Ready();
  }
  return std::nullopt;
}

int HealthState::Subscribe(std::function<void()> on_change) {
  MutexLock lock(&mutex_);
  subscribers_.emplace(next_handle_, std::move(on_change));
  return next_handle_++;
}

void HealthState::Unsubscribe(int handle) {
  MutexLock lock(&mutex_);
  subscribers_.erase(handle);
}

void HealthState::Tell() {
  std::vector<std::function<void()>> subscribers;
  {
    MutexLock lock(&mutex_);
    for (const auto& [handle, on_change] : subscribers_) subscribers.push_back(on_change);
  }
  for (const auto& on_change : subscribers) on_change();
}

}  // namespace sluice
