// The bytes of output that the server holds for its clients: answers that nobody reads yet, streams that run ahead of
// their readers. One budget for each connection and one for all; when one is exceeded, the call that holds most under it
// is cut, so that no one pays for another.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "engine/base/mutex.h"

namespace sluice {

// Thread-safe. Outlives its holdings.
class OutputBudget {
 public:
  struct Limits {
    int64_t connection_bytes = 64 << 20;
    int64_t total_bytes = 256 << 20;
  };

  // What one call holds. Gives everything back when it goes.
  class Holding {
   public:
    ~Holding();
    Holding(const Holding&) = delete;
    Holding& operator=(const Holding&) = delete;

    // `bytes` more are to be held. False: it is this call that must go; it holds nothing any more. Others that must go
    // are told from here, so the caller holds no locks.
    bool Add(int64_t bytes);
    void Remove(int64_t bytes);

   private:
    friend class OutputBudget;
    Holding(OutputBudget* budget, std::string peer, std::function<void()> cut)
        : budget_(*budget), peer_(std::move(peer)), cut_(std::make_shared<std::function<void()>>(std::move(cut))) {}

    OutputBudget& budget_;
    const std::string peer_;
    const std::shared_ptr<const std::function<void()>> cut_;
    // Guarded by the budget's mutex.
    int64_t bytes_ = 0;
    bool is_cut_ = false;
  };

  explicit OutputBudget(const Limits& limits) : limits_(limits) {}

  // For a call of `peer`. `cut` is called once at most, by any thread, when the call must go because of others; after
  // that it counts for nothing, so it is to let go of what it holds at once.
  std::unique_ptr<Holding> Open(std::string peer, std::function<void()> cut);

  int64_t bytes() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Calls that had to go.
  int64_t num_cut() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Connection {
    int64_t bytes = 0;
    absl::flat_hash_set<Holding*> holdings;  // that hold something
  };

  bool Add(Holding* holding, int64_t bytes) ABSL_LOCKS_EXCLUDED(mutex_);
  void Remove(Holding* holding, int64_t bytes) ABSL_LOCKS_EXCLUDED(mutex_);
  void Change(Holding* holding, int64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static Holding* LargestOf(const Connection& connection);

  const Limits limits_;
  mutable Mutex mutex_;
  absl::flat_hash_map<std::string, Connection> connections_ ABSL_GUARDED_BY(mutex_);
  int64_t total_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t num_cut_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace sluice
