// Worker threads for many short parallel regions: a decoding step is some 150 regions of a few microseconds each.
//
// A region is n chunks. Each worker begins with a contiguous share of them, so that it reads one long stream of memory;
// who is done takes some of what others have left of theirs (region_board.h says how none is lost). A region ends
// when its chunks are done, not when every worker has come by: a worker that the system took off its core holds nobody up
// unless it holds a chunk, and one to which that happens leaves the work to the others for a while. Idle workers poll for
// a short time and then sleep in the kernel.
//
// Results must not depend on which worker runs which chunk; only the order of chunks inside one share is defined
// (they are begun in ascending order).
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "engine/base/region_board.h"

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
    Run(num_chunks, {.function =
                         [](const void* f, uint32_t chunk, int worker) {
                           (*const_cast<Callable*>(static_cast<const Callable*>(f)))(chunk, worker);
                         },
                     .context = &fn,
                     .next = next});
  }

  // Where each worker stands, in one line: for the log of a process whose steps have stopped. Any thread, at any time;
  // the parts need not be of one moment.
  std::string Describe() const;

 private:
  struct Work {
    void (*function)(const void* context, uint32_t chunk, int worker) = nullptr;
    const void* context = nullptr;
    uint32_t first_chunk = 0;  // added to the board's chunks, in pieces of a region too large for one posting
    std::span<const uint8_t> next;
  };
  using Board = RegionBoard<Work>;
  // What a worker does, for Describe.
  struct alignas(64) Place {
    static constexpr uint64_t kOutside = 0, kWaits = 1, kSitsOut = 2, kFirstChunk = 3;  // kFirstChunk + c: in chunk c
    std::atomic<uint64_t> value{kOutside};
  };

  void Run(uint32_t num_chunks, Work work);
  template <class AfterChunk>
  bool RunChunks(int worker, Board::Region region, AfterChunk&& after_chunk);
  void WorkerLoop(int worker);
  void SitOut(std::chrono::milliseconds time) const;
  void SetPlace(int worker, uint64_t place) const { places_[worker].value.store(place, std::memory_order_relaxed); }

  const std::chrono::nanoseconds spin_;
  Board board_;
  std::unique_ptr<Place[]> places_;  // one per worker
  std::vector<std::thread> threads_;
};

}  // namespace sluice
