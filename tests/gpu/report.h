// What a program measured: a line for people, and one JSON object a line in a file, complete as soon as it is known, so
// that a crash does not take what came before it.
#pragma once

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sluice::cuda_testing {

struct Measured {
  std::string part;    // "gemm"
  std::string name;    // "skinny BF16 28672 x 4096"
  double seconds = 0;  // of one
  double floor_seconds = 0;
  std::vector<std::pair<std::string, double>> numbers = {};  // more of it: {"rows", 8}
};

class Report {
 public:
  // An empty path: no file. INTERNAL, naming it: it cannot be written.
  static absl::StatusOr<Report> Open(const std::string& json_path);
  Report(Report&& other) noexcept : file_(std::exchange(other.file_, nullptr)) {}
  ~Report();

  void Add(const Measured& measured);
  // Neither a time nor a failure: what the device is, what was left out and why.
  void Note(const std::string& part, const std::string& text);

 private:
  explicit Report(std::FILE* file) : file_(file) {}
  void Write(const std::string& line);
  std::FILE* file_;
};

}  // namespace sluice::cuda_testing
