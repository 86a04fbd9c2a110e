// What gRPC and protobuf want to log goes through our log: on one line, escaped, cut, and no more of it than somebody
// could read. Their messages hold what clients send.
#pragma once

#include <cstdint>

namespace sluice {

// A bucket of lines: `burst` at once, then `per_second`. Not thread-safe.
class LineLimiter {
 public:
  LineLimiter(int burst, int per_second) : burst_(burst), per_second_(per_second), tokens_(burst) {}

  // Whether a line may be written at `now_ns` of a monotonic clock.
  bool Allow(int64_t now_ns);
  // Lines that were not allowed since the last call.
  int64_t TakeNumLeftOut();

 private:
  const double burst_;
  const double per_second_;
  double tokens_;
  int64_t last_ns_ = 0;
  int64_t num_left_out_ = 0;
};

// For the process, once.
void LogLibrariesThroughOurs();

}  // namespace sluice
