// A thread pool's life on a board, for the model checker: a poster and workers as ThreadPool has them, a few regions, the
// end. Every chunk must run exactly once, with its region's Work, and be seen by the poster when the region is done.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "tests/base/interleavings.h"

namespace sluice {

struct RegionWork {
  uint32_t region = 0;
};

template <class Board>
class RegionBoardProgram : public interleavings::Program {
 public:
  // regions[r] is the number of chunks of region r.
  RegionBoardProgram(int num_workers, std::vector<uint32_t> regions, uint64_t first_number)
      : num_workers_(num_workers), regions_(std::move(regions)), board_(num_workers, first_number) {
    for (uint32_t chunks : regions_) {
      written_.push_back(std::make_unique<interleavings::Plain<int>[]>(chunks));
      num_runs_.emplace_back(chunks);
    }
  }

  int num_threads() const override { return num_workers_; }

  void Thread(int worker) override {
    if (worker == 0) return Post();
    for (auto region = board_.first();;) {
      region = board_.WaitForRegion(region, kNoSpin);
      if (region.is_end()) return;
      interleavings::Forget(region.number());
      Run(worker, region);
      interleavings::Forget(region.number());
    }
  }

  void AtEnd() override {
    for (const auto& region : num_runs_) {
      for (int runs : region) interleavings::Check(runs == 1, "a chunk has not run once");
    }
  }

  uint64_t State() const override {
    uint64_t state = 0;
    for (const auto& region : num_runs_) {
      for (int runs : region) state = state * 3 + static_cast<uint64_t>(runs);
    }
    return state;
  }

 private:
  static constexpr std::chrono::nanoseconds kNoSpin{0};

  void Post() {
    for (uint32_t r = 0; r < regions_.size(); ++r) {
      const auto region = board_.Post(regions_[r], RegionWork{r});
      interleavings::Forget(r);
      Run(0, region);
      interleavings::Forget(r);
      board_.WaitUntilDone(kNoSpin);
      interleavings::Forget(r);
      for (uint32_t chunk = 0; chunk < regions_[r]; ++chunk) {
        interleavings::Check(num_runs_[r][chunk] == 1, "a region is done before its chunks");
        interleavings::Check(written_[r][chunk].Get() == 1, "what a chunk wrote is not seen");
      }
    }
    board_.PostEnd();
  }

  template <class Region>
  void Run(int worker, Region region) {
    board_.RunChunks(static_cast<uint32_t>(worker), region, [&](const RegionWork& work, uint32_t chunk) {
      interleavings::Check(work.region < regions_.size() && chunk < regions_[work.region], "a chunk that does not exist");
      interleavings::Check(++num_runs_[work.region][chunk] == 1, "a chunk runs twice");
      written_[work.region][chunk].Set(1);
    });
  }

  const int num_workers_;
  const std::vector<uint32_t> regions_;
  Board board_;
  std::vector<std::unique_ptr<interleavings::Plain<int>[]>> written_;  // [region][chunk]
  std::vector<std::vector<int>> num_runs_;                             // [region][chunk]
};

}  // namespace sluice
