#include "tests/base/interleavings.h"

#include <algorithm>
#include <cstdio>
#include <deque>
#include <unordered_set>

#include "absl/strings/str_cat.h"
#include "engine/base/check.h"
#include "tests/cuda_on_cpu/fiber.h"

namespace sluice::interleavings {
namespace {

using cuda_on_cpu::Fiber;
using internal::Order;

constexpr int kMaxSteps = 5000;  // of one execution: more is taken for an endless loop

uint64_t Mix(uint64_t hash, uint64_t value) {
  hash ^= value + 0x9e3779b97f4a7c15u + (hash << 6) + (hash >> 2);
  hash ^= hash >> 31;
  return hash * 0xff51afd7ed558ccdu;
}

bool Acquires(Order order) { return order == Order::acquire || order == Order::acq_rel || order == Order::seq_cst; }
bool Releases(Order order) { return order == Order::release || order == Order::acq_rel || order == Order::seq_cst; }

// A value that an atomic had.
struct Value {
  uint64_t bits = 0;
  bool releases = false;
  Knowledge released;  // what an acquire load of it learns
};

struct Cell {
  std::vector<Value> values;     // in modification order
  uint16_t newest_seq_cst = 0;   // index of the newest value that a sequentially consistent operation stored or read
  std::vector<int> sleepers;     // threads that wait for a notification
};

// One access to Plain memory.
struct Access {
  int thread = -1;      // none: there was none, or it was before all threads
  uint16_t number = 0;  // counts the thread's accesses
};

struct PlainCell {
  Access written;
  std::array<Access, kMaxThreads> read;
};

enum class Waiting { kNo, kForTurn, kAsleep, kEnded };

struct ThreadState {
  Fiber fiber;
  Knowledge knows;
  uint64_t history = 0;  // of all that it has read: determines where it is
  Waiting waiting = Waiting::kForTurn;
  const char* next = "";  // the operation before which it stands
  int next_atomic = -1;
  uint32_t next_line = 0;
};

// One exploration. Threads run on fibers; the explorer, on the host's stack, lets one of them make one operation.
class Explorer {
 public:
  Explorer(const std::function<std::unique_ptr<Program>()>& make, const Options& options) : make_(make), options_(options) {}

  Result Run();

  // Called on fibers (or, while a program is constructed or destroyed, on the host's stack: current_ is -1).
  int NewAtomic(uint64_t value) {
    Must(cells_.size() < kMaxAtomics, "more atomics than kMaxAtomics");
    cells_.emplace_back().values.push_back({.bits = value, .releases = true, .released = {}});
    return static_cast<int>(cells_.size()) - 1;
  }
  uint64_t Load(int atomic, Order order, uint32_t line);
  void Store(int atomic, uint64_t bits, Order order, uint32_t line);
  uint64_t Modify(int atomic, const uint64_t* expected, const std::function<uint64_t(uint64_t)>& change, Order order, uint32_t line);
  void Wait(int atomic, uint64_t old, uint32_t line);
  void Notify(int atomic, bool all, uint32_t line);
  int NewPlain() {
    plains_.emplace_back();
    return static_cast<int>(plains_.size()) - 1;
  }
  void Read(int plain);
  void Write(int plain);
  void Forget(uint64_t state, uint32_t line) {
    if (current_ >= 0) threads_[static_cast<size_t>(current_)]->history = Mix(line, state);
  }
  void Fail(const std::string& what);

 private:
  // A decision: which of `count` alternatives was taken at the depth where it stands in decisions_.
  struct Decision {
    int taken = 0, count = 1;
  };

  Knowledge& knows() { return threads_[static_cast<size_t>(current_)]->knows; }
  const Knowledge& knows() const { return threads_[static_cast<size_t>(current_)]->knows; }
  static void Must(bool ok, const char* what) {
    if (ok) return;
    std::fprintf(stderr, "interleavings: %s\n", what);
    std::abort();
  }

  static bool Knows(const Knowledge& knowledge, const Access& access) {
    return access.thread < 0 || access.number <= knowledge.accesses[static_cast<size_t>(access.thread)];
  }
  Access NextAccess();
  void CheckOrdered(const Access& previous, const char* what);
  static void FiberMain();
  void Execute();
  bool Advance();
  int Choose(int count);
  bool SeenBefore();
  uint64_t StateHash() const;
  void Pause(const char* operation, int atomic, uint32_t line);
  void Stop(Waiting waiting);
  Order Effective(Order order, uint32_t line);
  void Learn(const Value& value, size_t index, int atomic, Order order);
  void Append(Cell* cell, int atomic, uint64_t bits, Order order, const Value* continues);
  void Note(uint64_t value) { threads_[static_cast<size_t>(current_)]->history = Mix(threads_[static_cast<size_t>(current_)]->history, value); }
  std::string Trace() const;

  const std::function<std::unique_ptr<Program>()> make_;
  const Options options_;
  Result result_;

  std::vector<Decision> decisions_;
  size_t depth_ = 0;  // decisions made in this execution
  std::unordered_set<uint64_t> seen_;

  Fiber host_;
  std::array<std::unique_ptr<ThreadState>, kMaxThreads> threads_;
  int num_threads_ = 0;
  std::unique_ptr<Program> program_;
  std::deque<Cell> cells_;
  std::deque<PlainCell> plains_;
  int current_ = -1;
  bool failed_ = false, over_ = false;
  struct Step {
    int thread;
    const char* operation;
    int atomic;
    uint32_t line;
    uint64_t value;
  };
  std::vector<Step> steps_;
};

Explorer* explorer = nullptr;

void Explorer::FiberMain() {
  Fiber::Begin();
  Explorer& self = *explorer;
  self.program_->Thread(self.current_);
  self.Stop(Waiting::kEnded);
  std::abort();
}

// Leaves the fiber until the explorer picks its thread again.
void Explorer::Stop(Waiting waiting) {
  ThreadState& thread = *threads_[static_cast<size_t>(current_)];
  thread.waiting = waiting;
  thread.fiber.SwitchTo(host_);
}

void Explorer::Pause(const char* operation, int atomic, uint32_t line) {
  if (current_ < 0) return;
  ThreadState& thread = *threads_[static_cast<size_t>(current_)];
  thread.next = operation;
  thread.next_atomic = atomic;
  thread.next_line = line;
  Stop(Waiting::kForTurn);
  Note(line);
}

Order Explorer::Effective(Order order, uint32_t line) {
  if (order != Order::relaxed && current_ >= 0) {
    auto& lines = result_.ordered_lines;
    if (std::find(lines.begin(), lines.end(), line) == lines.end()) lines.push_back(line);
  }
  return line == options_.relaxed_line ? Order::relaxed : order;
}

void Explorer::Learn(const Value& value, size_t index, int atomic, Order order) {
  Cell& cell = cells_[static_cast<size_t>(atomic)];
  if (order == Order::seq_cst) cell.newest_seq_cst = std::max(cell.newest_seq_cst, static_cast<uint16_t>(index));
  if (current_ < 0) return;
  if (Acquires(order) && value.releases) knows().Join(value.released);
  uint16_t& newest = knows().newest[static_cast<size_t>(atomic)];
  newest = std::max(newest, static_cast<uint16_t>(index));
  Note(value.bits);
  if (!steps_.empty()) steps_.back().value = value.bits;
}

void Explorer::Append(Cell* cell, int atomic, uint64_t bits, Order order, const Value* continues) {
  Value value{.bits = bits, .releases = false, .released = {}};
  const auto index = static_cast<uint16_t>(cell->values.size());
  if (current_ >= 0) knows().newest[static_cast<size_t>(atomic)] = index;
  if (continues != nullptr && continues->releases) {
    value.releases = true;
    value.released = continues->released;
  }
  if (Releases(order)) {
    value.releases = true;
    if (current_ >= 0) value.released.Join(knows());
  }
  if (order == Order::seq_cst) cell->newest_seq_cst = index;
  cell->values.push_back(value);
}

uint64_t Explorer::Load(int atomic, Order order, uint32_t line) {
  Pause("load", atomic, line);
  order = Effective(order, line);
  Cell& cell = cells_[static_cast<size_t>(atomic)];
  size_t index = cell.values.size() - 1;
  if (options_.weak && current_ >= 0) {
    size_t oldest = knows().newest[static_cast<size_t>(atomic)];
    if (order == Order::seq_cst) oldest = std::max<size_t>(oldest, cell.newest_seq_cst);
    index -= static_cast<size_t>(Choose(static_cast<int>(index - oldest) + 1));
  }
  const Value value = cell.values[index];
  Learn(value, index, atomic, order);
  return value.bits;
}

void Explorer::Store(int atomic, uint64_t bits, Order order, uint32_t line) {
  Pause("store", atomic, line);
  if (!steps_.empty()) steps_.back().value = bits;
  Append(&cells_[static_cast<size_t>(atomic)], atomic, bits, Effective(order, line), nullptr);
}

uint64_t Explorer::Modify(int atomic, const uint64_t* expected, const std::function<uint64_t(uint64_t)>& change, Order order,
                          uint32_t line) {
  Pause(expected != nullptr ? "compare-exchange" : "modify", atomic, line);
  order = Effective(order, line);
  Cell& cell = cells_[static_cast<size_t>(atomic)];
  const Value last = cell.values.back();
  Learn(last, cell.values.size() - 1, atomic, order);
  if (expected != nullptr && last.bits != *expected) return last.bits;
  Append(&cell, atomic, change(last.bits), order, &last);
  return last.bits;
}

// As the kernel's: compares and falls asleep in one step; only a notification ends it.
void Explorer::Wait(int atomic, uint64_t old, uint32_t line) {
  Pause("wait", atomic, line);
  Cell& cell = cells_[static_cast<size_t>(atomic)];
  for (;;) {
    const Value last = cell.values.back();
    Learn(last, cell.values.size() - 1, atomic, Order::relaxed);
    if (last.bits != old) return;
    cell.sleepers.push_back(current_);
    Stop(Waiting::kAsleep);
  }
}

void Explorer::Notify(int atomic, bool all, uint32_t line) {
  Pause(all ? "notify all" : "notify one", atomic, line);
  Cell& cell = cells_[static_cast<size_t>(atomic)];
  while (!cell.sleepers.empty()) {
    const int woken = Choose(static_cast<int>(all ? 1 : cell.sleepers.size()));
    threads_[static_cast<size_t>(cell.sleepers[static_cast<size_t>(woken)])]->waiting = Waiting::kForTurn;
    cell.sleepers.erase(cell.sleepers.begin() + woken);
    if (!all) return;
  }
}

Access Explorer::NextAccess() {
  return current_ < 0 ? Access{} : Access{current_, ++knows().accesses[static_cast<size_t>(current_)]};
}

void Explorer::CheckOrdered(const Access& previous, const char* what) {
  if (current_ >= 0 && !Knows(knows(), previous)) Fail(what);
}

void Explorer::Read(int plain) {
  PlainCell& cell = plains_[static_cast<size_t>(plain)];
  CheckOrdered(cell.written, "a read races with a write");
  if (current_ >= 0) cell.read[static_cast<size_t>(current_)] = NextAccess();
}

void Explorer::Write(int plain) {
  PlainCell& cell = plains_[static_cast<size_t>(plain)];
  CheckOrdered(cell.written, "a write races with a write");
  for (const Access& read : cell.read) CheckOrdered(read, "a write races with a read");
  cell.written = NextAccess();
}

void Explorer::Fail(const std::string& what) {
  if (!failed_) result_.failure = absl::StrCat(what, Trace());
  failed_ = true;
  if (current_ >= 0) Stop(Waiting::kEnded);  // never to be picked again
}

std::string Explorer::Trace() const {
  std::string text = "\n";
  for (const Step& step : steps_) {
    absl::StrAppend(&text, "  thread ", step.thread, ": ", step.operation, " of atomic ", step.atomic, " at line ", step.line, ": ",
                    absl::Hex(step.value), "\n");
  }
  return text;
}

uint64_t Explorer::StateHash() const {
  // Of each atomic, how many of its oldest values no thread can read any more: positions count from there.
  std::array<size_t, kMaxAtomics> gone{};
  for (size_t a = 0; a < cells_.size(); ++a) {
    gone[a] = cells_[a].values.size() - 1;
    for (int t = 0; options_.weak && t < num_threads_; ++t) {
      const ThreadState& thread = *threads_[static_cast<size_t>(t)];
      if (thread.waiting != Waiting::kEnded) gone[a] = std::min<size_t>(gone[a], thread.knows.newest[a]);
    }
  }
  uint64_t hash = 0;
  const auto add_position = [&](size_t a, size_t index) { hash = Mix(hash, index - std::min(index, gone[a])); };
  const auto add = [&](const Knowledge& knowledge) {
    for (size_t a = 0; options_.weak && a < cells_.size(); ++a) add_position(a, knowledge.newest[a]);
    for (int t = 0; t < num_threads_; ++t) hash = Mix(hash, knowledge.accesses[static_cast<size_t>(t)]);
  };
  for (size_t a = 0; a < cells_.size(); ++a) {
    const Cell& cell = cells_[a];
    for (size_t i = gone[a]; i < cell.values.size(); ++i) {
      hash = Mix(hash, cell.values[i].bits);
      if (cell.values[i].releases) add(cell.values[i].released);
    }
    if (options_.weak) add_position(a, cell.newest_seq_cst);
    for (int sleeper : cell.sleepers) hash = Mix(hash, static_cast<uint64_t>(sleeper) + 7);
  }
  for (int t = 0; t < num_threads_; ++t) {
    const ThreadState& thread = *threads_[static_cast<size_t>(t)];
    hash = Mix(hash, static_cast<uint64_t>(thread.waiting));
    if (thread.waiting == Waiting::kEnded) continue;
    hash = Mix(hash, thread.history);
    add(thread.knows);
  }
  const auto add_access = [&](const Access& access) {
    bool known = true;  // to all: nobody can race with it any more
    for (int t = 0; t < num_threads_; ++t) {
      const ThreadState& thread = *threads_[static_cast<size_t>(t)];
      known &= thread.waiting == Waiting::kEnded || Knows(thread.knows, access);
    }
    hash = known ? Mix(hash, 0) : Mix(Mix(hash, static_cast<uint64_t>(access.thread) + 1), access.number);
  };
  for (const PlainCell& cell : plains_) {
    add_access(cell.written);
    for (int t = 0; t < num_threads_; ++t) add_access(cell.read[static_cast<size_t>(t)]);
  }
  return Mix(hash, program_->State());
}

// Takes the next decision as recorded, or the first alternative of a new one.
int Explorer::Choose(int count) {
  if (count <= 1) return 0;
  if (depth_ == decisions_.size()) decisions_.push_back({.taken = 0, .count = count});
  Decision& decision = decisions_[depth_++];
  Must(decision.count == count, "the code under test does not repeat itself");
  return decision.taken;
}

// The next execution differs in the last decision that has another alternative. False: there is none.
bool Explorer::Advance() {
  while (!decisions_.empty() && decisions_.back().taken + 1 == decisions_.back().count) decisions_.pop_back();
  if (decisions_.empty()) return false;
  ++decisions_.back().taken;
  return true;
}

void Explorer::Execute() {
  current_ = -1;
  cells_.clear();
  plains_.clear();
  steps_.clear();
  depth_ = 0;
  program_ = make_();
  num_threads_ = program_->num_threads();
  Must(num_threads_ <= kMaxThreads, "more threads than kMaxThreads");
  for (int t = 0; t < num_threads_; ++t) {
    auto& thread = threads_[static_cast<size_t>(t)];
    if (thread == nullptr) thread = std::make_unique<ThreadState>();
    thread->knows = {};
    for (size_t a = 0; a < cells_.size(); ++a) thread->knows.newest[a] = static_cast<uint16_t>(cells_[a].values.size() - 1);
    thread->history = 0;
    thread->waiting = Waiting::kForTurn;
    thread->fiber.Prepare(&FiberMain, static_cast<unsigned>(t));
  }
  // Each stands before its first operation.
  for (current_ = 0; current_ < num_threads_; ++current_) host_.SwitchTo(threads_[static_cast<size_t>(current_)]->fiber);
  current_ = -1;
  const size_t known = decisions_.size();
  for (int num_steps = 0; !failed_; ++num_steps) {
    if (num_steps == kMaxSteps) return Fail("an execution does not end");
    std::array<int, kMaxThreads> ready{};
    int num_ready = 0, num_ended = 0;
    for (int t = 0; t < num_threads_; ++t) {
      const Waiting waiting = threads_[static_cast<size_t>(t)]->waiting;
      if (waiting == Waiting::kForTurn) ready[static_cast<size_t>(num_ready++)] = t;
      num_ended += waiting == Waiting::kEnded;
    }
    if (num_ended == num_threads_) break;
    if (num_ready == 0) return Fail("threads wait for ever");
    // A state on the recorded way has been entered before: this execution leaves it by another door.
    if (depth_ >= known) {
      if (!seen_.insert(StateHash()).second) return;
      Must(++result_.num_states <= options_.max_states, "more states than options.max_states");
    }
    current_ = ready[static_cast<size_t>(Choose(num_ready))];
    const ThreadState& thread = *threads_[static_cast<size_t>(current_)];
    steps_.push_back({current_, thread.next, thread.next_atomic, thread.next_line, 0});
    host_.SwitchTo(threads_[static_cast<size_t>(current_)]->fiber);
    current_ = -1;
  }
  if (!failed_) program_->AtEnd();
}

Result Explorer::Run() {
  Must(explorer == nullptr, "one exploration at a time");
  explorer = this;
  host_.StandForThisThread();
  do {
    Execute();
    ++result_.num_executions;
    program_.reset();
  } while (!failed_ && Advance());
  explorer = nullptr;
  return result_;
}

}  // namespace

void Knowledge::Join(const Knowledge& other) {
  for (size_t i = 0; i < newest.size(); ++i) newest[i] = std::max(newest[i], other.newest[i]);
  for (size_t i = 0; i < accesses.size(); ++i) accesses[i] = std::max(accesses[i], other.accesses[i]);
}

Result Explore(const std::function<std::unique_ptr<Program>()>& make, const Options& options) {
  return Explorer(make, options).Run();
}

void Forget(uint64_t state, uint32_t line) { explorer->Forget(state, line); }

void Check(bool ok, const char* what) {
  if (!ok) explorer->Fail(what);
}

namespace internal {

int NewAtomic(uint64_t value) { return explorer->NewAtomic(value); }
uint64_t Load(int atomic, Order order, uint32_t line) { return explorer->Load(atomic, order, line); }
void Store(int atomic, uint64_t value, Order order, uint32_t line) { explorer->Store(atomic, value, order, line); }
uint64_t Modify(int atomic, const uint64_t* expected, const std::function<uint64_t(uint64_t)>& change, Order order, uint32_t line) {
  return explorer->Modify(atomic, expected, change, order, line);
}
void Wait(int atomic, uint64_t old, uint32_t line) { explorer->Wait(atomic, old, line); }
void Notify(int atomic, bool all, uint32_t line) { explorer->Notify(atomic, all, line); }
int NewPlain() { return explorer->NewPlain(); }
void Read(int plain) { explorer->Read(plain); }
void Write(int plain) { explorer->Write(plain); }

}  // namespace internal
}  // namespace sluice::interleavings
