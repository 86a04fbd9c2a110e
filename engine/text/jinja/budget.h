// What a chat template may use up. A template comes from a model file and its data from a client, so both are
// untrusted: every loop, every string and every level of nesting is paid for here, and a render that spends too much
// ends with a RESOURCE_EXHAUSTED status that names the limit.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"

namespace sluice::jinja {

struct Limits {
  size_t max_source_bytes = size_t{1} << 20;  // template text
  int max_nesting = 200;                      // syntax tree of a template, and JSON given to it
  int64_t max_steps = 10'000'000;  // evaluated nodes; scanning 64 bytes or visiting 4 items counts as one more
  size_t max_built_bytes =
      size_t{128} << 20;  // memory of all values made during one render (nothing is freed before its end)
  size_t max_output_bytes = size_t{32} << 20;  // rendered text
  int max_depth = 1'000;        // nested macro calls, statements and expressions; each takes up to 2 KiB of stack
  int64_t max_range = 100'000;  // items of one range()
};

// Counts one render's spending. Not thread-safe.
class Budget {
 public:
  explicit Budget(const Limits& limits) : limits_(limits) {}

  // One evaluated node costs one step.
  absl::Status Spend(int64_t steps) {
    if (steps > limits_.max_steps - steps_) return TooManySteps();
    steps_ += steps;
    return absl::OkStatus();
  }
  // Reading over so many bytes, or so many list items.
  absl::Status Scan(size_t bytes) { return Spend(static_cast<int64_t>(bytes / 64)); }
  absl::Status Visit(size_t items) { return Spend(static_cast<int64_t>(items / 4)); }
  // Call before allocating.
  absl::Status Build(size_t bytes) {
    if (bytes > limits_.max_built_bytes - built_) return TooManyBytes();
    built_ += bytes;
    return absl::OkStatus();
  }

  const Limits& limits() const { return limits_; }
  int64_t steps() const { return steps_; }
  size_t built_bytes() const { return built_; }

 private:
  friend class DepthGuard;
  absl::Status TooManySteps() const;
  absl::Status TooManyBytes() const;
  absl::Status TooDeep() const;

  const Limits limits_;
  int64_t steps_ = 0;
  size_t built_ = 0;
  int depth_ = 0;
};

// One frame of recursion, for as long as it lives. Use: `DepthGuard guard(budget);
// SLUICE_RETURN_IF_ERROR(guard.status());`
class DepthGuard {
 public:
  explicit DepthGuard(Budget& budget) : budget_(budget) { ++budget_.depth_; }
  ~DepthGuard() { --budget_.depth_; }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;

  absl::Status status() const {
    return budget_.depth_ <= budget_.limits_.max_depth ? absl::OkStatus() : budget_.TooDeep();
  }

 private:
  Budget& budget_;
};

}  // namespace sluice::jinja
