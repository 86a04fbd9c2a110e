// Worker threads for many short parallel regions: a decoding step is some 150 regions of a few microseconds each.
//
// A region is n chunks. Each worker owns a contiguous range of them, so that it reads one long stream of memory; who is
// done takes the upper half of what another has left. A region ends when its chunks are done, not when every worker has
// come by: a worker that the system took off its core holds nobody up unless it holds a chunk, and one to which that
// happens leaves the work to the others for a while. Idle workers poll for a short time and then sleep in the kernel.
//
// Results must not depend on which worker runs which chunk; only the order of chunks inside one worker is defined
// (ascending within a range).
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <thread>
#include <type_traits>
#include <vector>

namespace sluice {

class ThreadPool {
 public:
  // `num_threads` counts the caller of ParallelFor, which is worker 0: num_threads - 1 threads are started.
  // `spin` is how long an idle worker polls before it sleeps. REQUIRES: num_threads >= 1.
  explicit ThreadPool(int num_threads, std::chrono::microseconds spin = std::chrono::microseconds(50));
  // REQUIRES: no ParallelFor is running. Waits for the threads to end (at most a few milliseconds).
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return static_cast<int>(threads_.size()) + 1; }

  // Runs fn(chunk, worker) once for each chunk in [0, num_chunks) and returns when all are done; whatever they wrote is
  // visible to the caller then. worker is in [0, num_threads()) and no two chunks run with the same worker at a time,
  // so it may index scratch memory. `next` names memory that the region to come will read (weights): workers that run
  // out of chunks prefetch the start of their part of it. fn must not throw and must not call ParallelFor of the same
  // pool. Any thread may call, one at a time.
  template <class Fn>
  void ParallelFor(uint32_t num_chunks, Fn&& fn, std::span<const uint8_t> next = {}) {
    using Callable = std::remove_reference_t<Fn>;
    Run(
        num_chunks,
        [](const void* f, uint32_t chunk, int worker) {
          (*const_cast<Callable*>(static_cast<const Callable*>(f)))(chunk, worker);
        },
        &fn, next);
  }

 private:
  using Function = void (*)(const void* context, uint32_t chunk, int worker);
  struct Range {
    uint32_t begin, end;
  };
  // What is left of a worker's range, (end << 32 | begin) in one word: nobody ever sees a mixed pair.
  struct alignas(64) Ticket {
    std::atomic<uint64_t> range{0};
  };

  void Run(uint32_t num_chunks, Function function, const void* context, std::span<const uint8_t> next);
  bool Draw(int worker, Range* range);
  bool DrawOwn(int worker, uint64_t* own, Range* range);
  bool Steal(int worker, uint64_t own, Range* range);
  bool RunChunks(int worker);
  void WaitUntilDone();
  void WorkerLoop(int worker);
  void SitOut(std::chrono::milliseconds time) const;

  const std::chrono::nanoseconds spin_;

  // The current region. Written by Run before the tickets are filled, read only by holders of chunks of the region.
  Function function_ = nullptr;
  const void* context_ = nullptr;
  std::span<const uint8_t> next_;
  uint32_t num_chunks_ = 0;

  std::unique_ptr<Ticket[]> tickets_;              // one per worker
  alignas(64) std::atomic<uint32_t> num_done_{0};  // chunks of the current region that have run
  alignas(64) std::atomic<uint32_t> epoch_{0};     // counts regions; workers sleep on it
  alignas(64) std::atomic<uint32_t> num_sleeping_{0};
  std::atomic<bool> caller_sleeps_{false};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

}  // namespace sluice
