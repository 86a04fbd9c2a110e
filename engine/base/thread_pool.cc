#include "engine/base/thread_pool.h"

#include <sys/resource.h>

#include <algorithm>

#include "engine/base/check.h"

namespace sluice {
namespace {

using SteadyClock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// A chunk that takes longer than this asks the system whether its thread has been preempted: less than the time slice of
// a busy neighbour, more than what a server's own threads take to send the tokens of a step.
constexpr std::chrono::microseconds kLongChunk{1000};
// Chunks shorter than this are timed kChunksInRow at a time: reading the clock for each would be felt.
constexpr std::chrono::microseconds kShortChunk{10};
constexpr uint32_t kChunksInRow = 8;
// One lost time slice stalls a thousand regions, so a worker without a core of its own stays away for longer each time.
// A longest break of 320 ms already halves the speed of a quiet machine, because small daemons trigger it too.
constexpr milliseconds kFirstBreak{5}, kLongestBreak{160};
constexpr size_t kIdlePrefetchBytes = 16 << 10;

constexpr uint64_t MakeTicket(uint32_t begin, uint32_t end) { return uint64_t{end} << 32 | begin; }

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#endif
}

// Polls until done() or until `limit` has passed; returns the last done().
template <class Done>
bool SpinUntil(std::chrono::nanoseconds limit, Done done) {
  if (done()) return true;
  if (limit.count() == 0) return false;
  const auto deadline = SteadyClock::now() + limit;
  do {
    for (int i = 0; i < 16; ++i) {
      Pause();
      if (done()) return true;
    }
  } while (SteadyClock::now() < deadline);
  return false;
}

// How often the system has taken this thread off its core against its will.
int64_t NumPreemptions() {
  rusage usage;
  return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nivcsw : 0;
}

}  // namespace

ThreadPool::ThreadPool(int num_threads, std::chrono::microseconds spin)
    : spin_(spin), tickets_(std::make_unique<Ticket[]>(std::max(num_threads, 1))) {
  SLUICE_CHECK(num_threads >= 1);
  // The vector is complete before the first worker looks at num_threads().
  threads_.resize(num_threads - 1);
  for (int worker = 1; worker < num_threads; ++worker) {
    threads_[worker - 1] = std::thread([this, worker] { WorkerLoop(worker); });
  }
}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  epoch_.fetch_add(1);
  epoch_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::Run(uint32_t num_chunks, Function function, const void* context, std::span<const uint8_t> next) {
  if (num_chunks == 0) return;
  function_ = function;
  context_ = context;
  next_ = next;
  num_chunks_ = num_chunks;
  num_done_.store(0, std::memory_order_relaxed);
  const uint64_t workers = num_threads();
  for (uint64_t i = 0; i < workers; ++i) {
    const uint64_t ticket = MakeTicket(static_cast<uint32_t>(num_chunks * i / workers),
                                       static_cast<uint32_t>(num_chunks * (i + 1) / workers));
    tickets_[i].range.store(ticket, std::memory_order_release);
  }
  if (num_chunks > 1 && workers > 1) {
    epoch_.fetch_add(1);  // seq_cst, as is the count of sleepers: either we see the sleeper or it sees the new epoch
    if (num_sleeping_.load() > 0) epoch_.notify_all();
  }
  RunChunks(0);
  WaitUntilDone();
}

bool ThreadPool::DrawOwn(int worker, uint64_t* own, Range* range) {
  std::atomic<uint64_t>& ticket = tickets_[worker].range;
  *own = ticket.load(std::memory_order_relaxed);
  for (;;) {
    const uint32_t begin = static_cast<uint32_t>(*own), end = static_cast<uint32_t>(*own >> 32);
    if (begin >= end) return false;
    if (ticket.compare_exchange_weak(*own, MakeTicket(begin + 1, end), std::memory_order_acq_rel)) {
      *range = {begin, begin + 1};
      return true;
    }
  }
}

// Takes the upper half of another worker's range. `own` is the worker's own, empty ticket as it last saw it.
bool ThreadPool::Steal(int worker, uint64_t own, Range* range) {
  for (int i = 1; i < num_threads(); ++i) {
    std::atomic<uint64_t>& ticket = tickets_[(worker + i) % num_threads()].range;
    uint64_t seen = ticket.load(std::memory_order_relaxed);
    for (;;) {
      const uint32_t begin = static_cast<uint32_t>(seen), end = static_cast<uint32_t>(seen >> 32);
      if (begin >= end) break;
      const uint32_t middle = begin + (end - begin) / 2;
      if (!ticket.compare_exchange_weak(seen, MakeTicket(begin, middle), std::memory_order_acq_rel)) continue;
      // Offer all but the first chunk to the others. If a new region has filled our own ticket since we looked at it,
      // the exchange fails and the whole loot is run here.
      const uint64_t rest = MakeTicket(middle + 1, end);
      const bool offered = tickets_[worker].range.compare_exchange_strong(own, rest, std::memory_order_acq_rel);
      *range = {middle, offered ? middle + 1 : end};
      return true;
    }
  }
  return false;
}

bool ThreadPool::Draw(int worker, Range* range) {
  uint64_t own;
  return DrawOwn(worker, &own, range) || Steal(worker, own, range);
}

// Runs chunks until none is left to draw. Returns true when a chunk took long.
bool ThreadPool::RunChunks(int worker) {
  uint32_t num_run = 0;
  bool took_long = false;
  Range range;
  auto start = SteadyClock::now();
  uint32_t in_row = 1, num_timed = 0;
  while (Draw(worker, &range)) {
    for (uint32_t chunk = range.begin; chunk < range.end; ++chunk, ++num_run) function_(context_, chunk, worker);
    if (num_run - num_timed < in_row) continue;
    const auto end = SteadyClock::now();
    took_long |= end - start > kLongChunk;
    in_row = end - start < kShortChunk * (num_run - num_timed) ? kChunksInRow : 1;
    start = end;
    num_timed = num_run;
  }
  if (num_run == 0) return false;
  // Chunks that are not yet counted keep the region alive: read its fields before counting them.
  const uint32_t num_chunks = num_chunks_;
  const std::span<const uint8_t> next = next_;
  if (num_done_.fetch_add(num_run) + num_run == num_chunks && caller_sleeps_.load()) num_done_.notify_one();
  if (!next.empty()) {
    const uint8_t* ahead = next.data() + next.size() / num_threads() * worker;
    for (size_t i = 0; i < kIdlePrefetchBytes; i += 64) __builtin_prefetch(ahead + i);
  }
  return took_long;
}

void ThreadPool::WaitUntilDone() {
  if (SpinUntil(spin_, [this] { return num_done_.load(std::memory_order_acquire) == num_chunks_; })) return;
  caller_sleeps_.store(true);
  for (uint32_t done; (done = num_done_.load()) != num_chunks_;) num_done_.wait(done);
  caller_sleeps_.store(false);
}

void ThreadPool::SitOut(milliseconds time) const {
  for (; time.count() > 0 && !stop_.load(); time -= kFirstBreak) std::this_thread::sleep_for(kFirstBreak);
}

void ThreadPool::WorkerLoop(int worker) {
  uint32_t seen = 0;
  int64_t preemptions = NumPreemptions();
  milliseconds pause = kFirstBreak;
  auto back = SteadyClock::time_point::min();
  while (!stop_.load()) {
    if (!SpinUntil(spin_, [&] { return epoch_.load(std::memory_order_acquire) != seen; })) {
      num_sleeping_.fetch_add(1);
      epoch_.wait(seen);
      num_sleeping_.fetch_sub(1);
    }
    seen = epoch_.load();
    if (!RunChunks(worker)) continue;
    const int64_t before = preemptions;
    preemptions = NumPreemptions();
    if (preemptions == before) continue;
    const auto now = SteadyClock::now();
    const bool again = back != SteadyClock::time_point::min() && now - back < 10 * kFirstBreak;
    pause = again ? std::min(2 * pause, kLongestBreak) : kFirstBreak;
    SitOut(pause);
    back = SteadyClock::now();
  }
}

}  // namespace sluice
