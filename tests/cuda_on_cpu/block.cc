#include "tests/cuda_on_cpu/block.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/cuda_on_cpu/block_functions.h"
#include "tests/cuda_on_cpu/sanitizer.h"

namespace sluice::cuda_on_cpu {

constinit thread_local Thread* current = nullptr;

Block& ThisBlock() {
  static thread_local Block block;
  return block;
}

namespace {

bool SameLine(const SourceLine& a, const SourceLine& b) {
  if (a.line() != b.line()) return false;
  return a.file_name() == b.file_name() || std::strcmp(a.file_name(), b.file_name()) == 0;
}

// Two places in one complaint.
[[noreturn]] void FailBetween(const char* what, const SourceLine& one, const SourceLine& other) {
  const std::string text = std::string(what) + ": " + one.file_name() + ":" + std::to_string(one.line()) + " and";
  Fail(text.c_str(), other);
}

}  // namespace

Block::Block() {
  const char* order = std::getenv("CUDA_ON_CPU_ORDER");
  const char* seed = std::getenv("CUDA_ON_CPU_SEED");
  ThreadOrder chosen = ThreadOrder::kForward;
  if (order != nullptr && std::strcmp(order, "forward") != 0) {
    if (std::strcmp(order, "reverse") == 0) {
      chosen = ThreadOrder::kReverse;
    } else if (std::strcmp(order, "random") == 0) {
      chosen = ThreadOrder::kRandom;
    } else {
      Fail("CUDA_ON_CPU_ORDER is none of forward, reverse, random", SourceLine::current());
    }
  }
  SetOrder(chosen, seed != nullptr ? std::strtoull(seed, nullptr, 10) : 1);
}

void Block::SetOrder(ThreadOrder order, uint64_t seed) {
  order_ = order;
  random_ = seed * 0x9e3779b97f4a7c15ull | 1;
}

void SetThreadOrder(ThreadOrder order, uint64_t seed) { ThisBlock().SetOrder(order, seed); }

uint64_t Block::Random() {  // xorshift64, Marsaglia 2003
  random_ ^= random_ << 13;
  random_ ^= random_ >> 7;
  random_ ^= random_ << 17;
  return random_;
}

// ---------------------------------------------------------------- who runs

namespace {

unsigned NthBit(uint32_t mask, unsigned n) {
  for (; n > 0; --n) mask &= mask - 1;
  return static_cast<unsigned>(std::countr_zero(mask));
}

}  // namespace

BlockThread& Block::PickNext() {
  const auto pick = [this](uint32_t mask) -> unsigned {
    switch (order_) {
      case ThreadOrder::kForward:
        return static_cast<unsigned>(std::countr_zero(mask));
      case ThreadOrder::kReverse:
        return 31 - static_cast<unsigned>(std::countl_zero(mask));
      case ThreadOrder::kRandom:
        break;
    }
    return NthBit(mask, static_cast<unsigned>(Random() >> 32) % static_cast<unsigned>(std::popcount(mask)));
  };
  if (ready_warps_ == 0) ReportDeadlock();
  const unsigned warp = pick(ready_warps_);
  const unsigned lane = pick(ready_lanes_[warp]);
  ready_lanes_[warp] &= ~(1u << lane);
  if (ready_lanes_[warp] == 0) ready_warps_ &= ~(1u << warp);
  return *set_->threads[warp * kWarpSize + lane];
}

void Block::Wake(unsigned warp, uint32_t lanes) {
  if (lanes == 0) return;
  ready_lanes_[warp] |= lanes;
  ready_warps_ |= 1u << warp;
}

void Block::Wait(const char* what, const SourceLine& where) {
  BlockThread& me = *running_;
  me.waits_for = what;
  me.waits_at = where;
  BlockThread& next = PickNext();
  ++switches_;
  running_ = &next;
  me.fiber.SwitchTo(next.fiber);
  current = &me;
  me.waits_for = nullptr;
}

void Block::ReportDeadlock() const {
  const uint3 index = running_->block_index;
  std::fprintf(stderr, "cuda_on_cpu: deadlock in block %u,%u,%u: no thread can go on\n", index.x, index.y, index.z);
  // Neighbours that wait for the same thing share a line.
  for (unsigned first = 0, next = 0; first < num_threads_; first = next) {
    const BlockThread& thread = *set_->threads[first];
    const auto same = [&](const BlockThread& other) {
      return other.waits_for == thread.waits_for &&
             (thread.waits_for == nullptr || SameLine(other.waits_at, thread.waits_at));
    };
    for (next = first; next < num_threads_ && same(*set_->threads[next]);) ++next;
    if (thread.waits_for == nullptr) {
      std::fprintf(stderr, "  threads %u-%u have exited\n", first, next - 1);
    } else {
      std::fprintf(stderr, "  threads %u-%u wait for %s at %s:%u\n", first, next - 1, thread.waits_for,
                   thread.waits_at.file_name(), static_cast<unsigned>(thread.waits_at.line()));
    }
  }
  std::abort();
}

// ---------------------------------------------------------------- the life of a block

void Block::BeginLaunch(const SourceLine& where) {
  if (inside_launch()) Fail("a kernel launches a kernel", where);
  host_.StandForThisThread();
}

void Block::EndLaunch() { Acquire(&end_order_); }

void Block::ChooseSet(uint64_t number, unsigned num_threads) {
  const uint64_t num_sets = UnderTsan() ? std::max(kMinTsanSets, kTsanFibers / num_threads) : 1;
  const uint64_t index = number % num_sets;
  if (index == 0) Acquire(&end_order_);
  while (sets_.size() <= index) sets_.push_back(std::make_unique<Set>());
  set_ = sets_[index].get();
}

void Block::Prepare(const dim3& grid_size, const dim3& block_size, const uint3& block_index) {
  auto& threads = set_->threads;
  while (threads.size() < num_threads_) threads.push_back(std::make_unique<BlockThread>());
  for (unsigned i = 0; i < num_threads_; ++i) {
    BlockThread& thread = *threads[i];
    thread.thread_index = {i % block_size.x, i / block_size.x % block_size.y, i / (block_size.x * block_size.y)};
    thread.block_index = block_index;
    thread.block_size = block_size;
    thread.grid_size = grid_size;
    thread.linear = i;
    thread.warp = i / kWarpSize;
    thread.lane = i % kWarpSize;
    thread.waits_for = nullptr;
    thread.fiber.Prepare(&Block::ThreadMain, i);
    set_->state.warps[thread.warp].live |= 1u << thread.lane;
    Wake(thread.warp, 1u << thread.lane);
  }
}

void Block::Run(uint64_t number, const dim3& grid_size, const dim3& block_size, const uint3& block_index,
                size_t shared_bytes, const std::function<void()>& body) {
  body_ = &body;
  num_threads_ = alive_ = block_size.x * block_size.y * block_size.z;
  ChooseSet(number, num_threads_);
  set_->shared.Begin(shared_bytes);
  Release(&start_order_);
  Prepare(grid_size, block_size, block_index);
  BlockThread& first = PickNext();
  running_ = &first;
  host_.SwitchTo(first.fiber);
  running_ = nullptr;
  current = nullptr;
  body_ = nullptr;
}

void Block::ThreadMain() {
  Fiber::Begin();
  Block& block = ThisBlock();
  current = block.running_;
  Acquire(&block.start_order_);
  (*block.body_)();
  block.Exit();
}

void Block::Exit() {
  BlockThread& me = *running_;
  me.copies.RequireNone();
  BlockState::Warp& warp = set_->state.warps[me.warp];
  warp.live &= ~(1u << me.lane);
  for (uint32_t left = warp.pending; left != 0; left &= left - 1) {
    const BlockState::WarpOp& op = warp.ops[std::countr_zero(left)];
    if (op.mask >> me.lane & 1) Fail("a lane exits while others of its mask wait for it", op.where);
  }
  --alive_;
  BlockState::Barrier& all = set_->state.barriers[0];
  if (all.arrived != 0 && all.expected == 0 && all.arrived == alive_) ReleaseBarrier(all);
  Release(&end_order_);
  Fiber* next = &host_;
  if (alive_ > 0) {
    BlockThread& thread = PickNext();
    running_ = &thread;
    next = &thread.fiber;
  }
  ++switches_;
  me.fiber.FinishInto(*next);
}

// ---------------------------------------------------------------- barriers

void Block::ReleaseBarrier(BlockState::Barrier& barrier) {
  for (unsigned warp = 0; warp * kWarpSize < num_threads_; ++warp) {
    Wake(warp, barrier.waiting[warp]);
    barrier.waiting[warp] = 0;
  }
  barrier.arrived = 0;
  ++barrier.generation;
}

unsigned MeetAtBarrier(unsigned id, unsigned threads, bool predicate, const SourceLine& where) {
  return ThisBlock().MeetAtBarrier(id, threads, predicate, where);
}

unsigned Block::MeetAtBarrier(unsigned id, unsigned expected, bool predicate, const SourceLine& where) {
  Require(id < kBarriers, "a barrier's number is not below 16", where);
  Require(expected % kWarpSize == 0, "a barrier's number of threads is not a multiple of 32", where);
  BlockThread& me = *running_;
  BlockState::Barrier& barrier = set_->state.barriers[id];
  const unsigned parity = barrier.generation % 2;
  if (barrier.arrived == 0) {
    barrier.first = where;
    barrier.expected = expected;
    barrier.true_predicates[parity] = 0;
  } else {
    if (expected == 0 && !SameLine(barrier.first, where))
      FailBetween("threads of a block meet at different barriers", barrier.first, where);
    Require(barrier.expected == expected, "threads expect different numbers at one barrier", where);
  }
  barrier.true_predicates[parity] += predicate;
  ++barrier.arrived;
  Release(&barrier.order[parity]);
  if (barrier.arrived == (expected == 0 ? alive_ : expected)) {
    ReleaseBarrier(barrier);
  } else {
    barrier.waiting[me.warp] |= 1u << me.lane;
    Wait("a barrier", where);
  }
  Acquire(&barrier.order[parity]);
  return barrier.true_predicates[parity];
}

void Fence() { ThisBlock().Fence(); }

void Block::Fence() {
  Acquire(&fence_order_);
  Release(&fence_order_);
}

// ---------------------------------------------------------------- warps

void MeetInWarp(uint32_t mask, const void* operand, void* result, WarpFunction function, const SourceLine& where) {
  ThisBlock().MeetInWarp(mask, operand, result, function, where);
}

void Block::MeetInWarp(uint32_t mask, const void* operand, void* result, WarpFunction function,
                       const SourceLine& where) {
  BlockThread& me = *running_;
  BlockState::Warp& warp = set_->state.warps[me.warp];
  Require(mask >> me.lane & 1, "a warp operation's mask leaves out the calling lane", where);
  Require((mask & ~warp.live) == 0, "a warp operation's mask names a lane that has exited or never was", where);
  const unsigned slot = static_cast<unsigned>(std::countr_zero(mask));
  for (uint32_t left = warp.pending; left != 0; left &= left - 1) {
    const BlockState::WarpOp& other = warp.ops[std::countr_zero(left)];
    if ((other.mask & mask) == 0) continue;  // lanes that have nothing to do with this operation
    if (other.mask != mask || other.function != function || !SameLine(other.where, where))
      FailBetween("lanes of a warp meet in different warp operations", other.where, where);
  }
  BlockState::WarpOp& op = warp.ops[slot];
  if (op.arrived == 0) {
    op.mask = mask;
    op.where = where;
    op.function = function;
    warp.pending |= 1u << slot;
  }
  op.arrived |= 1u << me.lane;
  warp.operands[me.lane] = operand;
  warp.results[me.lane] = result;
  Release(&op.arrive_order);
  if (op.arrived != mask) {
    Wait("the other lanes of its mask", where);
    Acquire(&op.done_order);
    return;
  }
  Acquire(&op.arrive_order);
  if (function != nullptr) function({mask, warp.operands, warp.results, where});
  Release(&op.done_order);
  op.arrived = 0;
  warp.pending &= ~(1u << slot);
  Wake(me.warp, mask & ~(1u << me.lane));
}

}  // namespace sluice::cuda_on_cpu
