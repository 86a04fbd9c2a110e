// A board with a bug that stress did not find for months: one ticket per worker, filled by the poster one after another,
// and thieves that put what they have taken, but for its first chunk, into their own ticket. A worker that is still busy
// with the region before can rob the first ticket and put the loot into its own before the poster fills that one: the
// loot is overwritten, and the region never ends. The model checker must find it.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

namespace sluice {

template <class Work, class Atomics>
class LossyBoard {
 public:
  struct Region {
    uint32_t posting = 0, chunks = 0;
    uint64_t number() const { return posting; }
    uint32_t num_chunks() const { return chunks; }
    bool is_end() const { return posting == kEnd; }
  };

  LossyBoard(int num_workers, uint64_t)
      : num_workers_(static_cast<uint32_t>(num_workers)), tickets_(std::make_unique<Ticket[]>(num_workers_)) {}

  Region first() const { return {}; }

  Region Post(uint32_t num_chunks, const Work& work) {
    work_.Set(work);
    num_chunks_ = num_chunks;
    num_done_.store(0, std::memory_order_relaxed);
    for (uint64_t i = 0; i < num_workers_; ++i) {
      tickets_[i].range.store(Pack(num_chunks * i / num_workers_, num_chunks * (i + 1) / num_workers_), std::memory_order_release);
    }
    const uint32_t posting = epoch_.fetch_add(1) + 1;
    epoch_.notify_all();
    return {posting, num_chunks};
  }

  void PostEnd() {
    epoch_.store(kEnd);
    epoch_.notify_all();
  }

  Region WaitForRegion(Region seen, std::chrono::nanoseconds) {
    epoch_.wait(seen.posting);
    return {epoch_.load(), num_chunks_};
  }

  template <class Run>
  uint32_t RunChunks(uint32_t worker, Region, Run&& run) {
    uint32_t num_run = 0;
    for (uint64_t own = 0, range = 0; DrawOwn(worker, &own, &range) || Steal(worker, own, &range);) {
      for (uint32_t chunk = Begin(range); chunk < End(range); ++chunk, ++num_run) run(work_.Get(), chunk);
    }
    if (num_run > 0) {
      num_done_.fetch_add(num_run);
      num_done_.notify_one();
    }
    return num_run;
  }

  void WaitUntilDone(std::chrono::nanoseconds) {
    for (uint32_t done; (done = num_done_.load()) != num_chunks_;) num_done_.wait(done);
  }

 private:
  static constexpr uint32_t kEnd = ~0u;
  struct Ticket {
    typename Atomics::template Atomic<uint64_t> range{0};
  };
  static uint64_t Pack(uint64_t begin, uint64_t end) { return end << 32 | begin; }
  static uint32_t Begin(uint64_t range) { return static_cast<uint32_t>(range); }
  static uint32_t End(uint64_t range) { return static_cast<uint32_t>(range >> 32); }

  bool DrawOwn(uint32_t worker, uint64_t* own, uint64_t* range) {
    auto& ticket = tickets_[worker].range;
    *own = ticket.load(std::memory_order_acquire);
    while (Begin(*own) < End(*own)) {
      if (!ticket.compare_exchange_weak(*own, Pack(Begin(*own) + 1, End(*own)), std::memory_order_acq_rel)) continue;
      *range = Pack(Begin(*own), Begin(*own) + 1);
      return true;
    }
    return false;
  }

  bool Steal(uint32_t worker, uint64_t own, uint64_t* range) {
    for (uint32_t i = 1; i < num_workers_; ++i) {
      auto& ticket = tickets_[(worker + i) % num_workers_].range;
      for (uint64_t seen = ticket.load(std::memory_order_acquire); Begin(seen) < End(seen);) {
        const uint32_t middle = Begin(seen) + (End(seen) - Begin(seen)) / 2;
        if (!ticket.compare_exchange_weak(seen, Pack(Begin(seen), middle), std::memory_order_acq_rel)) continue;
        const uint64_t rest = Pack(middle + 1, End(seen));
        const bool offered = tickets_[worker].range.compare_exchange_strong(own, rest, std::memory_order_acq_rel);
        *range = Pack(middle, offered ? middle + 1 : End(seen));
        return true;
      }
    }
    return false;
  }

  const uint32_t num_workers_;
  typename Atomics::template Plain<Work> work_;
  uint32_t num_chunks_ = 0;
  const std::unique_ptr<Ticket[]> tickets_;
  typename Atomics::template Atomic<uint32_t> num_done_{0};
  typename Atomics::template Atomic<uint32_t> epoch_{0};
};

}  // namespace sluice
