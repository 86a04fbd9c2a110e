// Runs lock-free code through every order of events: a model checker for code whose atomics are a parameter
// (engine/base/native_atomics.h). The code itself runs, on fibers; each operation on an atomic is a point where any other
// thread may go on instead, and where a load may return any value that the memory model lets it return.
//
//   class Program : public interleavings::Program { Atomic<int> flag; Plain<int> data; ... void Thread(int i) override; };
//   const interleavings::Result result = interleavings::Explore([] { return std::make_unique<Program>(); }, options);
//   EXPECT_EQ(result.failure, "");
//
// What is found: a failed Check, a data race on a Plain, threads that wait for ever, and executions without an end.
//
// Memory model. Every atomic has a list of its values in modification order, to which stores append. A thread knows, for
// each atomic, the newest value that happens before its next step; a load may return that one or any newer; an acquire
// load of a value that was released adds what the releaser knew. Read-modify-writes read the last value and continue a
// release sequence. A sequentially consistent load returns no value older than what an earlier sequentially consistent
// operation on the same atomic stored or read. Of what C++20 allows this leaves out: that a load sees a store that comes
// later in the exploration (load buffering), or, if it is sequentially consistent, takes effect before a weaker load that
// precedes it; that a compare-exchange fails although the last value is the expected one; stores to one atomic in another
// order than the explored one. Code that relies on any of these needs an argument of its own. With options.weak = false
// loads return the last value: plain interleavings, for larger cases.
//
// Reduction. An execution is abandoned in a state that has been seen: all values that a thread may still read, with what
// they release, the accesses to Plain memory that are not yet known to all, and of each thread all values that it has read,
// which determine where in its code it is and all its variables. Each state is left once through each thread that can go on, with each value that it may read; no
// interleaving is lost. (States are known by 64-bit hashes.)
//
// One exploration at a time in a process; x86-64 (tests/cuda_on_cpu/fiber.h).
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

namespace sluice::interleavings {

inline constexpr int kMaxThreads = 5;
inline constexpr int kMaxAtomics = 16;

// One run of the code under test: its constructor and destructor run alone, before and after all threads.
class Program {
 public:
  virtual ~Program() = default;
  virtual int num_threads() const = 0;
  virtual void Thread(int thread) = 0;
  // After all threads have ended.
  virtual void AtEnd() {}
  // Of ordinary variables that outlive a Forget, if there are any.
  virtual uint64_t State() const { return 0; }
};

struct Options {
  bool weak = true;
  int64_t max_states = 200'000'000;
  // Where set, operations at this source line have no memory order beyond relaxed: a seeded bug.
  uint32_t relaxed_line = 0;
};

struct Result {
  std::string failure;  // empty: none; else what happened, and the steps that led there
  int64_t num_states = 0;
  int64_t num_executions = 0;
  // Source lines of operations whose order was stronger than relaxed.
  std::vector<uint32_t> ordered_lines;
};

Result Explore(const std::function<std::unique_ptr<Program>()>& make, const Options& options = {});

// Of the code under test: ends the exploration with a failure unless `ok`.
void Check(bool ok, const char* what);

// For the explored program, never needed, but for speed: tells that what its thread has read until now matters only in so
// far as it determines `state`: all that the thread still knows at this place. Executions that agree there are one.
void Forget(uint64_t state = 0, uint32_t line = __builtin_LINE());

// What one thread knows to happen before its next step: the newest value of each atomic, and how many of its accesses to
// Plain memory each thread had made.
struct Knowledge {
  std::array<uint16_t, kMaxAtomics> newest{};
  std::array<uint16_t, kMaxThreads> accesses{};
  void Join(const Knowledge& other);
};

namespace internal {

using Order = std::memory_order;

int NewAtomic(uint64_t value);
uint64_t Load(int atomic, Order order, uint32_t line);
void Store(int atomic, uint64_t value, Order order, uint32_t line);
// Appends change(last value) and returns the last value; with `expected`, only if the last value is that.
uint64_t Modify(int atomic, const uint64_t* expected, const std::function<uint64_t(uint64_t)>& change, Order order, uint32_t line);
void Wait(int atomic, uint64_t old, uint32_t line);
void Notify(int atomic, bool all, uint32_t line);

int NewPlain();
void Write(int plain);
void Read(int plain);

}  // namespace internal

// The parameter for code that takes its atomics as one.
struct Atomics {
  template <class T>
  class Atomic {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8);
    using Order = std::memory_order;

   public:
    Atomic(T value) : id_(internal::NewAtomic(To(value))) {}  // NOLINT: implicit, as std::atomic's

    T load(Order order = Order::seq_cst, uint32_t line = __builtin_LINE()) const { return From(internal::Load(id_, order, line)); }
    void store(T value, Order order = Order::seq_cst, uint32_t line = __builtin_LINE()) {
      internal::Store(id_, To(value), order, line);
    }
    T fetch_add(T value, Order order = Order::seq_cst, uint32_t line = __builtin_LINE()) {
      return From(internal::Modify(id_, nullptr, [&](uint64_t last) { return To(T(From(last) + value)); }, order, line));
    }
    T fetch_sub(T value, Order order = Order::seq_cst, uint32_t line = __builtin_LINE()) {
      return fetch_add(T(-value), order, line);
    }
    T exchange(T value, Order order = Order::seq_cst, uint32_t line = __builtin_LINE()) {
      return From(internal::Modify(id_, nullptr, [&](uint64_t) { return To(value); }, order, line));
    }
    bool compare_exchange_strong(T& expected, T value, Order order = Order::seq_cst, uint32_t line = __builtin_LINE()) {
      const uint64_t wanted = To(expected);
      const uint64_t last = internal::Modify(id_, &wanted, [&](uint64_t) { return To(value); }, order, line);
      expected = From(last);
      return last == wanted;
    }
    bool compare_exchange_weak(T& expected, T value, Order order = Order::seq_cst, uint32_t line = __builtin_LINE()) {
      return compare_exchange_strong(expected, value, order, line);
    }
    void wait(T old, Order = Order::seq_cst, uint32_t line = __builtin_LINE()) const { internal::Wait(id_, To(old), line); }
    void notify_one(uint32_t line = __builtin_LINE()) { internal::Notify(id_, false, line); }
    void notify_all(uint32_t line = __builtin_LINE()) { internal::Notify(id_, true, line); }

   private:
    static uint64_t To(T value) { return static_cast<uint64_t>(value); }
    static T From(uint64_t bits) { return static_cast<T>(bits); }
    const int id_;
  };

  // Memory that must be ordered by the atomics around it.
  template <class T>
  class Plain {
   public:
    void Set(const T& value) {
      internal::Write(id_);
      value_ = value;
    }
    const T& Get() const {
      internal::Read(id_);
      return value_;
    }

   private:
    const int id_ = internal::NewPlain();
    T value_{};
  };

  // A poll that fails once has failed: the thread could also have come later.
  template <class Done>
  static bool SpinUntil(std::chrono::nanoseconds, Done done) {
    return done();
  }
};

template <class T>
using Atomic = Atomics::Atomic<T>;
template <class T>
using Plain = Atomics::Plain<T>;

}  // namespace sluice::interleavings
