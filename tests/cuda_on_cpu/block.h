// One block of threads at work: which of them can run, whom barriers and warp operations hold, and what to say when
// nobody can go on. Internal to the emulation; kernels see warp.h and the functions below.
//
// A thread of the block is a fiber. It runs until it waits, then hands over to the next runnable thread itself. Threads
// are kept as bit masks, 32 lanes a warp, so that the forward order works through a warp before it turns to the next:
// 32 stacks fit the first-level cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "tests/cuda_on_cpu/async_copy.h"
#include "tests/cuda_on_cpu/fail.h"
#include "tests/cuda_on_cpu/fiber.h"
#include "tests/cuda_on_cpu/order.h"
#include "tests/cuda_on_cpu/shared_memory.h"
#include "tests/cuda_on_cpu/thread.h"
#include "tests/cuda_on_cpu/warp.h"

namespace sluice::cuda_on_cpu {

inline constexpr unsigned kMaxThreads = 1024;
inline constexpr unsigned kWarpSize = 32;
inline constexpr unsigned kMaxWarps = kMaxThreads / kWarpSize;
inline constexpr unsigned kBarriers = 16;

// A thread of the block with what only the emulation knows of it.
struct BlockThread : Thread {
  Fiber fiber;
  const char* waits_for = nullptr;  // null: runs, can run, or has finished
  SourceLine waits_at;
  AsyncCopies copies;
};

// The synchronisation state of one block.
struct BlockState {
  struct Barrier {
    unsigned arrived = 0;
    unsigned expected = 0;  // 0: all threads that have not exited
    unsigned generation = 0;
    unsigned true_predicates[2] = {};  // by parity of the generation
    char order[2] = {};                // likewise: addresses for Release and Acquire
    SourceLine first;
    uint32_t waiting[kMaxWarps] = {};
  };
  struct WarpOp {
    uint32_t mask = 0;
    uint32_t arrived = 0;
    WarpFunction function = nullptr;
    SourceLine where;
    char arrive_order = 0, done_order = 0;
  };
  // The masks of operations that wait for lanes are disjoint: each lane is in one at most, and each operation has the
  // slot of its lowest lane.
  struct Warp {
    uint32_t live = 0;
    uint32_t pending = 0;  // slots in use
    WarpOp ops[kWarpSize];
    const void* operands[kWarpSize];
    void* results[kWarpSize];
  };
  Barrier barriers[kBarriers];
  Warp warps[kMaxWarps];
};

// ThreadSanitizer keeps what it knows of a thread by its fiber, and of memory by its address. So that it sees races
// between blocks, neighbouring blocks of a launch run on different fibers with different stacks, state and shared
// memory: block i has those of set i % NumSets(). Where the sets come round, everything before is taken as ordered; so
// races are found between blocks of the same round. Without ThreadSanitizer there is one set.
inline constexpr unsigned kTsanFibers = 512;
inline constexpr unsigned kMinTsanSets = 2;

class Block {
 public:
  Block();

  // Around the blocks of one launch: all that the host did before is seen by the threads, and theirs by it afterwards.
  void BeginLaunch(const SourceLine& where);
  void EndLaunch();
  // Runs `body` as each thread of the block `block_index`, the `number`th of the launch.
  void Run(uint64_t number, const dim3& grid_size, const dim3& block_size, const uint3& block_index,
           size_t shared_bytes, const std::function<void()>& body);

  void SetOrder(ThreadOrder order, uint64_t seed);
  ThreadOrder order() const { return order_; }
  uint64_t Random();

  // Waits until `expected` threads (0: all that have not exited) are at barrier `id`; how many of them said true.
  unsigned MeetAtBarrier(unsigned id, unsigned expected, bool predicate, const SourceLine& where);
  void MeetInWarp(uint32_t mask, const void* operand, void* result, WarpFunction function, const SourceLine& where);

  void Fence();

  BlockThread& running() { return *running_; }
  const SharedArena& shared() const { return set_->shared; }
  bool inside_launch() const { return body_ != nullptr; }
  uint64_t switches() const { return switches_; }

 private:
  static void ThreadMain();
  void ChooseSet(uint64_t number, unsigned num_threads);
  void Prepare(const dim3& grid_size, const dim3& block_size, const uint3& block_index);
  void Exit();
  void Wait(const char* what, const SourceLine& where);
  void Wake(unsigned warp, uint32_t lanes);
  void ReleaseBarrier(BlockState::Barrier& barrier);
  BlockThread& PickNext();
  [[noreturn]] void ReportDeadlock() const;

  struct Set {
    std::vector<std::unique_ptr<BlockThread>> threads;
    BlockState state;
    SharedArena shared;
  };
  std::vector<std::unique_ptr<Set>> sets_;
  Set* set_ = nullptr;  // of the running block
  Fiber host_;
  BlockThread* running_ = nullptr;
  const std::function<void()>* body_ = nullptr;

  uint32_t ready_warps_ = 0;
  uint32_t ready_lanes_[kMaxWarps] = {};
  unsigned num_threads_ = 0;
  unsigned alive_ = 0;

  ThreadOrder order_ = ThreadOrder::kForward;
  uint64_t random_ = 1;
  uint64_t switches_ = 0;
  char start_order_ = 0, end_order_ = 0, fence_order_ = 0;
};

// The block that this host thread runs.
Block& ThisBlock();

}  // namespace sluice::cuda_on_cpu
