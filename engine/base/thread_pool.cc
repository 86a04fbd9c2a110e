#include "engine/base/thread_pool.h"

#include <sys/resource.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
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
constexpr uint32_t kChunksInRow = 32;
// One lost time slice stalls a thousand regions, so a worker without a core of its own stays away for longer each time.
// A longest break of 320 ms already halves the speed of a quiet machine, because small daemons trigger it too.
constexpr milliseconds kFirstBreak{5}, kLongestBreak{160};
constexpr size_t kIdlePrefetchBytes = 16 << 10;

// How often the system has taken this thread off its core against its will.
int64_t NumPreemptions() {
  rusage usage;
  return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nivcsw : 0;
}

// Whether any chunk of a region took long. Reads the clock after each chunk, or where they are short after several. Each
// region begins with one: several long chunks, taken together, would look like one that took too long.
class ChunkTimer {
 public:
  void Start() {
    start_ = SteadyClock::now();
    num_untimed_ = 0;
    in_row_ = 1;
    took_long_ = false;
  }
  void AfterChunk() {
    if (++num_untimed_ == in_row_) Read();
  }
  // After the region's last. Returns whether any took long.
  bool Finish() {
    if (num_untimed_ > 0) Read();
    return took_long_;
  }

 private:
  void Read() {
    const auto now = SteadyClock::now();
    const auto took = now - start_;
    took_long_ |= took > kLongChunk;
    in_row_ = took < kShortChunk * num_untimed_ ? kChunksInRow : 1;
    start_ = now;
    num_untimed_ = 0;
  }

  SteadyClock::time_point start_;
  uint32_t num_untimed_ = 0, in_row_ = 1;
  bool took_long_ = false;
};

}  // namespace

ThreadPool::ThreadPool(int num_threads, std::chrono::microseconds spin)
    : spin_(spin), board_(std::max(num_threads, 1)), places_(std::make_unique<Place[]>(std::max(num_threads, 1))) {
  SLUICE_CHECK(num_threads >= 1);
  // The vector is complete before the first worker looks at num_threads().
  threads_.resize(num_threads - 1);
  for (int worker = 1; worker < num_threads; ++worker) {
    threads_[worker - 1] = std::thread([this, worker] { WorkerLoop(worker); });
  }
}

ThreadPool::~ThreadPool() {
  board_.PostEnd();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::Run(uint32_t num_chunks, Work work) {
  if (num_chunks <= 1 || threads_.empty()) {
    for (uint32_t chunk = 0; chunk < num_chunks; ++chunk) {
      SetPlace(0, Place::kFirstChunk + chunk);
      work.function(work.context, chunk, 0);
    }
    SetPlace(0, Place::kOutside);
    return;
  }
  for (uint32_t left = num_chunks; left > 0;) {
    const uint32_t piece = std::min(left, Board::kMaxChunks);
    const Board::Region region = board_.Post(piece, work);
    RunChunks(0, region, [] {});
    board_.WaitUntilDone(spin_);
    work.first_chunk += piece;
    left -= piece;
  }
  SetPlace(0, Place::kOutside);
}

// Runs chunks until none is left to draw, and calls after_chunk() after each. Returns whether it ran any.
template <class AfterChunk>
bool ThreadPool::RunChunks(int worker, Board::Region region, AfterChunk&& after_chunk) {
  std::span<const uint8_t> next;
  const auto run = [&](const Work& work, uint32_t chunk) {
    next = work.next;
    chunk += work.first_chunk;
    SetPlace(worker, Place::kFirstChunk + chunk);
    work.function(work.context, chunk, worker);
    after_chunk();
  };
  if (board_.RunChunks(static_cast<uint32_t>(worker), region, run) == 0) return false;
  SetPlace(worker, Place::kWaits);
  if (!next.empty()) {
    const uint8_t* ahead = next.data() + next.size() / num_threads() * worker;
    for (size_t i = 0; i < kIdlePrefetchBytes; i += 64) __builtin_prefetch(ahead + i);
  }
  return true;
}

void ThreadPool::SitOut(milliseconds time) const {
  for (; time.count() > 0 && !board_.current().is_end(); time -= kFirstBreak) std::this_thread::sleep_for(kFirstBreak);
}

void ThreadPool::WorkerLoop(int worker) {
  Board::Region region = board_.first();
  ChunkTimer timer;
  int64_t preemptions = NumPreemptions();
  milliseconds pause = kFirstBreak;
  auto back = SteadyClock::time_point::min();
  for (;;) {
    region = board_.WaitForRegion(region, spin_);
    if (region.is_end()) return;
    timer.Start();
    if (!RunChunks(worker, region, [&] { timer.AfterChunk(); }) || !timer.Finish()) continue;
    const int64_t before = preemptions;
    preemptions = NumPreemptions();
    if (preemptions == before) continue;
    const auto now = SteadyClock::now();
    const bool again = back != SteadyClock::time_point::min() && now - back < 10 * kFirstBreak;
    pause = again ? std::min(2 * pause, kLongestBreak) : kFirstBreak;
    SetPlace(worker, Place::kSitsOut);
    SitOut(pause);
    SetPlace(worker, Place::kWaits);
    back = SteadyClock::now();
  }
}

std::string ThreadPool::Describe() const {
  const Board::Region region = board_.current();
  std::string text = absl::StrCat("region ", region.number(), ": ", board_.num_undone(), " of ", region.num_chunks(), " chunks not done");
  for (int worker = 0; worker < num_threads(); ++worker) {
    const Board::Chunks left = board_.left_of_share(static_cast<uint32_t>(worker), region);
    const uint64_t place = places_[worker].value.load(std::memory_order_relaxed);
    absl::StrAppend(&text, "; worker ", worker, " ");
    switch (place) {
      case Place::kOutside:
        absl::StrAppend(&text, "is outside");
        break;
      case Place::kWaits:
        absl::StrAppend(&text, "waits");
        break;
      case Place::kSitsOut:
        absl::StrAppend(&text, "sits out");
        break;
      default:
        absl::StrAppend(&text, "is in chunk ", place - Place::kFirstChunk);
    }
    absl::StrAppend(&text, " (", left.end - left.begin, " left of its share)");
  }
  return text;
}

}  // namespace sluice
