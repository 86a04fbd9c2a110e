// Where a thread pool posts its parallel regions and its workers draw their chunks: the lock-free part of ThreadPool.
//
// A region is `num_chunks` chunks of one Work. One thread, the poster, which is worker 0, posts a region, draws chunks
// itself and waits until all of them have run, then posts the next. The chunks are split into one contiguous share per
// worker; a worker draws its own share from the front, chunk by chunk, and then from the back of what the others have left
// of theirs, half of that or some chunks at a time: so each reads memory in long runs, and none reads what another's core
// fetches ahead. Nobody waits for a worker that is late: it holds the region up only between drawing chunks and counting them.
//
// State. `current_` is one word, (number of the region, num_chunks), written once per region. The ticket of a share is
// one word, (number of the region in which it was last drawn from, next chunk, end): [next, end) is left. A ticket of an
// earlier region stands for a share of the current one from which nothing has been drawn, so posting a region touches no
// ticket.
//
//   current_ = (8, 6 chunks), 2 workers, shares [0, 3) and [3, 6)
//   ticket 0 = (8, 2, 3)   chunks 0 and 1 have been drawn, 2 is next
//   ticket 1 = (7, 5, 5)   left over from region 7: nothing drawn yet, [3, 6) is left
//
// Why no chunk is lost or run twice. The region numbers of a ticket only go up, and within a region what is left only
// shrinks. A draw in region r is a compare-exchange of the ticket to one of r that leaves the drawn chunks out: once it has
// succeeded nobody draws them in r again. It can only succeed while r is current: r ends when all its chunks have been
// counted, thus drawn, and from then on nothing is left in r of any share. So a worker that slept between reading
// current_ and its draw, for however many regions, draws nothing; whoever has drawn chunks of r keeps r current until it
// counts them, and may read r's Work until then. And poster and workers look at every share: what one has not drawn when
// the poster has looked, another has, and will count it.
//
// Numbers have 36 bits and are compared modulo 2^36: the claim above holds unless a thread is kept off its core between
// two instructions for 2^35 regions, hours at a region each half microsecond.
//
// The count of chunks that have run is never set back: a store by the poster would fetch its cache line once more.
//
// Memory order. What the poster wrote is seen by whoever reads the region's word (release store, acquire load); what
// chunks wrote is seen by the poster when it reads the full count (every count is a release operation of one sequence).
// Tickets guard nothing but themselves, and a stale ticket only makes a compare-exchange fail: relaxed. Sleeping needs
// sequential consistency, twice, where one thread writes A and reads B and the other writes B and reads A:
// (current_, num_sleeping_) and (num_done_, poster_sleeps_).
//
// tests/base/region_board_test.cc runs this code through every interleaving of small cases, with the stale values that the
// memory model lets loads return, and finds each of these orders necessary but one: that of num_wakes_, which is argued
// where it is read.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

#include "engine/base/check.h"
#include "engine/base/native_atomics.h"

namespace sluice {

template <class Work, class Atomics = NativeAtomics>
class RegionBoard {
 public:
  // A posted region, or the end. Two are equal if they are the same posting.
  class Region {
   public:
    Region() = default;
    uint64_t number() const { return word_ >> 2 * kChunkBits; }
    uint32_t num_chunks() const { return static_cast<uint32_t>(word_ & kChunkMask); }
    // There will be no further region.
    bool is_end() const { return num_chunks() == kChunkMask; }
    bool operator==(const Region&) const = default;

   private:
    friend RegionBoard;
    explicit Region(uint64_t word) : word_(word) {}
    uint64_t word_ = 0;
  };

  // A region has at most this many chunks.
  static constexpr uint32_t kMaxChunks = (1u << 14) - 2;
  static constexpr int kMaxWorkers = 1 << 16;

  // [begin, end)
  struct Chunks {
    uint32_t begin = 0, end = 0;
  };

  // REQUIRES: 1 <= num_workers <= kMaxWorkers. `first_number` is the number before that of the first region.
  explicit RegionBoard(int num_workers, uint64_t first_number = 0)
      : num_workers_(static_cast<uint32_t>(num_workers)),
        first_(Region(Pack(first_number, 0, 0))),
        tickets_(std::make_unique<Ticket[]>(num_workers_)),
        current_(first_.word_),
        last_number_(first_number) {
    SLUICE_CHECK(num_workers >= 1 && num_workers <= kMaxWorkers);
    for (uint32_t i = 0; i < num_workers_; ++i) tickets_[i].word.store(first_.word_, std::memory_order_relaxed);
  }

  // What every worker has seen before it waits for the first time.
  Region first() const { return first_; }

  // Poster only. REQUIRES: 1 <= num_chunks <= kMaxChunks; the region before is done.
  Region Post(uint32_t num_chunks, const Work& work) {
    SLUICE_CHECK(num_chunks >= 1 && num_chunks <= kMaxChunks);
    work_.Set(work);
    all_done_.store(all_done_.load(std::memory_order_relaxed) + num_chunks, std::memory_order_relaxed);
    return Publish(num_chunks);
  }

  // Poster only. REQUIRES: the region before is done. Every worker's wait ends.
  void PostEnd() { Publish(kChunkMask); }

  // A worker's: polls for `spin`, then sleeps, until there is another region than `seen`, and returns the newest.
  Region WaitForRegion(Region seen, std::chrono::nanoseconds spin) {
    uint64_t word = 0;
    const auto posted = [&](std::memory_order order) { return (word = current_.load(order)) != seen.word_; };
    if (Atomics::SpinUntil(spin, [&] { return posted(std::memory_order_acquire); })) return Region(word);
    num_sleeping_.fetch_add(1, std::memory_order_seq_cst);
    for (;;) {
      // Read before current_, in this order on every machine (acquire): whoever sees a wake-up sees the region it was for.
      const uint32_t num_wakes = num_wakes_.load(std::memory_order_acquire);
      if (posted(std::memory_order_seq_cst)) break;
      num_wakes_.wait(num_wakes, std::memory_order_relaxed);
    }
    num_sleeping_.fetch_sub(1, std::memory_order_relaxed);
    return Region(word);
  }

  // Draws chunks until none is left, calls run(work, chunk) for each, and counts them; returns how many there were. To
  // the poster and others the chunks are done only when this returns. A region that has ended has none left.
  template <class Run>
  uint32_t RunChunks(uint32_t worker, Region region, Run&& run) {
    uint32_t num_run = 0;
    for (uint32_t i = 0, share = worker; i < num_workers_; ++i, share = share + 1 < num_workers_ ? share + 1 : 0) {
      num_run += RunShare(share, i == 0, region, run);
    }
    if (num_run == 0) return 0;
    const uint32_t all = all_done_.load(std::memory_order_relaxed);  // while what this worker has not counted keeps the region
    if (num_done_.fetch_add(num_run, std::memory_order_seq_cst) + num_run == all &&
        poster_sleeps_.load(std::memory_order_seq_cst)) {
      num_done_.notify_one();
    }
    return num_run;
  }

  // Poster only: polls for `spin`, then sleeps, until every chunk of the region that it posted last has run.
  void WaitUntilDone(std::chrono::nanoseconds spin) {
    const uint32_t all = all_done_.load(std::memory_order_relaxed);
    if (Atomics::SpinUntil(spin, [&] { return num_done_.load(std::memory_order_acquire) == all; })) return;
    poster_sleeps_.store(true, std::memory_order_seq_cst);
    for (uint32_t done; (done = num_done_.load(std::memory_order_seq_cst)) != all;) {
      num_done_.wait(done, std::memory_order_relaxed);
    }
    poster_sleeps_.store(false, std::memory_order_relaxed);
  }

  // Any thread. A picture taken while others draw need not be of one moment.
  Region current() const { return Region(current_.load(std::memory_order_acquire)); }
  // Chunks of the current region that are not yet counted.
  uint32_t num_undone() const { return all_done_.load(std::memory_order_relaxed) - num_done_.load(std::memory_order_relaxed); }
  Chunks left_of_share(uint32_t share, Region region) const {
    return Left(tickets_[share].word.load(std::memory_order_relaxed), region, ShareOf(share, region));
  }

 private:
  static constexpr int kChunkBits = 14;
  static constexpr uint64_t kChunkMask = (uint64_t{1} << kChunkBits) - 1;
  static constexpr uint64_t kNumberMask = ~uint64_t{0} >> 2 * kChunkBits;
  // Chunks that a worker draws at a time of another's share, at most: nobody else can run them if it is interrupted.
  static constexpr uint32_t kMostAtOnce = 8;

  struct alignas(64) Ticket {
    typename Atomics::template Atomic<uint64_t> word{0};
  };

  static uint64_t Pack(uint64_t number, uint64_t end, uint64_t next) {
    return number << 2 * kChunkBits | end << kChunkBits | next;
  }

  Region Publish(uint32_t num_chunks) {
    const Region region(Pack(++last_number_, 0, num_chunks));
    current_.store(region.word_, std::memory_order_seq_cst);
    if (num_sleeping_.load(std::memory_order_seq_cst) > 0) {
      num_wakes_.fetch_add(1, std::memory_order_release);
      num_wakes_.notify_all();
    }
    return region;
  }

  Chunks ShareOf(uint32_t share, Region region) const {
    const auto border = [&](uint32_t i) { return region.num_chunks() * i / num_workers_; };
    return {border(share), border(share + 1)};
  }

  // What is left of `share` if its ticket reads `ticket`.
  static Chunks Left(uint64_t ticket, Region region, Chunks share) {
    const uint64_t age = (region.number() - (ticket >> 2 * kChunkBits)) & kNumberMask;
    if (age == 0) return {static_cast<uint32_t>(ticket & kChunkMask), static_cast<uint32_t>(ticket >> kChunkBits & kChunkMask)};
    if (age <= kNumberMask / 2) return share;  // of an earlier region
    return {share.end, share.end};             // of a later one: `region` has ended
  }

  // `own`: the share is that of the worker who draws.
  template <class Run>
  uint32_t RunShare(uint32_t share_index, bool own, Region region, Run&& run) {
    const Chunks share = ShareOf(share_index, region);
    if (share.begin == share.end) return 0;
    auto& ticket = tickets_[share_index].word;
    uint32_t num_run = 0;
    uint64_t seen = ticket.load(std::memory_order_relaxed);
    for (;;) {
      const Chunks left = Left(seen, region, share);
      if (left.begin >= left.end) return num_run;
      const uint32_t count = own ? 1 : std::min((left.end - left.begin + 1) / 2, kMostAtOnce);
      const Chunks drawn = own ? Chunks{left.begin, left.begin + 1} : Chunks{left.end - count, left.end};
      const uint64_t rest = Pack(region.number(), own ? left.end : drawn.begin, own ? drawn.end : left.begin);
      if (!ticket.compare_exchange_weak(seen, rest, std::memory_order_relaxed)) continue;
      seen = rest;
      for (uint32_t chunk = drawn.begin; chunk < drawn.end; ++chunk) run(work_.Get(), chunk);
      num_run += count;
    }
  }

  // Never written while workers run.
  const uint32_t num_workers_;
  const Region first_;
  const std::unique_ptr<Ticket[]> tickets_;  // one per share
  // Written by the poster alone, and together: workers fetch one cache line to begin a region.
  alignas(64) typename Atomics::template Atomic<uint64_t> current_;
  uint64_t last_number_;
  typename Atomics::template Atomic<uint32_t> all_done_{0};  // what num_done_ is at the current region's end
  typename Atomics::template Plain<Work> work_;              // of the current region

  alignas(64) typename Atomics::template Atomic<uint32_t> num_sleeping_{0};  // workers in the second half of WaitForRegion
  typename Atomics::template Atomic<uint32_t> num_wakes_{0};                 // what workers sleep on
  alignas(64) typename Atomics::template Atomic<uint32_t> num_done_{0};  // counted chunks of all regions, modulo 2^32
  typename Atomics::template Atomic<bool> poster_sleeps_{false};
};

}  // namespace sluice
