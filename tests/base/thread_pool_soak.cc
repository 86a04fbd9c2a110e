// usage: thread_pool_soak THREADS REGIONS: many tiny regions on a pool, each of whose chunks must run once. Prints how the
// pool stands, and exits with 1, when no region has ended for 10 seconds.
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "engine/base/thread_pool.h"

namespace {

constexpr int kSecondsWithoutEnd = 10;
constexpr uint32_t kFewestChunks = 7, kMostChunks = 15;

int Soak(int num_threads, int64_t num_regions) {
  sluice::ThreadPool pool(num_threads);
  std::atomic<int64_t> num_ended{0};
  std::thread watch([&] {
    int64_t last = -1;
    for (int seconds = 0; num_ended < num_regions; ++seconds) {
      std::this_thread::sleep_for(std::chrono::seconds(1));
      if (num_ended != last) seconds = 0;
      last = num_ended;
      if (seconds < kSecondsWithoutEnd) continue;
      std::printf("hangs after %lld regions: %s\n", static_cast<long long>(last), pool.Describe().c_str());
      std::fflush(stdout);
      _exit(1);
    }
  });
  std::array<std::atomic<uint32_t>, kMostChunks> runs{};
  for (int64_t i = 0; i < num_regions; ++i) {
    for (auto& count : runs) count.store(0, std::memory_order_relaxed);
    const uint32_t num_chunks = kFewestChunks + static_cast<uint32_t>(i) % (kMostChunks - kFewestChunks + 1);
    pool.ParallelFor(num_chunks, [&](uint32_t chunk, int) { runs[chunk].fetch_add(1, std::memory_order_relaxed); });
    for (uint32_t chunk = 0; chunk < num_chunks; ++chunk) {
      if (runs[chunk] == 1) continue;
      std::printf("region %lld: chunk %u ran %u times\n", static_cast<long long>(i), chunk, runs[chunk].load());
      std::fflush(stdout);
      _exit(2);
    }
    num_ended.store(i + 1, std::memory_order_relaxed);
  }
  watch.join();
  std::printf("ok: %lld regions with %d threads\n", static_cast<long long>(num_regions), num_threads);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return Soak(argc > 1 ? std::atoi(argv[1]) : 2, argc > 2 ? std::atoll(argv[2]) : 10'000'000);
}
