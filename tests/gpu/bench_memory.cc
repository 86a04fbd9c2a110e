#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "tests/gpu/bench.h"
#include "tests/gpu/bench_kernels.h"

namespace sluice::cuda_testing {

absl::Status BenchMemory(const Bench& bench) {
  const int64_t bytes = bench.tiny ? 1 << 16 : int64_t{4} << 30;
  const cuda::Stream stream = bench.device->stream();
  Arena arena(bench.device);
  const void* from = arena.Random(bytes);
  void* to = arena.Random(bytes);
  auto* sink = static_cast<uint32_t*>(arena.Zeros(16));
  SLUICE_RETURN_IF_ERROR(arena.status());
  const auto add = [&](const char* name, double moved, absl::StatusOr<double> seconds) -> absl::Status {
    SLUICE_RETURN_IF_ERROR(seconds.status());
    bench.report->Add({"memory", name, *seconds, FloorSeconds(moved, 0), {{"TB/s", moved / *seconds / 1e12}}});
    return absl::OkStatus();
  };
  const auto moved = static_cast<double>(bytes);
  SLUICE_RETURN_IF_ERROR(add("read", moved, SecondsOf(bench, moved / kBytesPerSecond, [&](int64_t) {
                               LaunchRead(from, bytes, sink, stream);
                             })));
  return add("copy", 2 * moved,
             SecondsOf(bench, 2 * moved / kBytesPerSecond, [&](int64_t) { LaunchCopy(from, to, bytes, stream); }));
}

absl::Status BenchNodes(const Bench& bench) {
  struct Case {
    const char* name;
    int32_t blocks, threads;
    bool dependent;
  };
  // A graph of as many empty kernels as a model of some hundred layers has.
  for (const Case& c : {Case{"one warp", 1, 32, false},
                        {"one warp, dependent", 1, 32, true},
                        {"264 blocks of 256", 264, 256, false},
                        {"264 blocks of 256, dependent", 264, 256, true}}) {
    SLUICE_ASSIGN_OR_RETURN(const double seconds, SecondsOf(bench, 3e-6, [&](int64_t) {
                              LaunchNothing(bench.tiny ? std::min(c.blocks, 2) : c.blocks, c.threads, c.dependent,
                                            bench.device->stream());
                            }));
    // No floor: what the design counts on.
    bench.report->Add({"nodes", absl::StrCat("empty kernel, ", c.name), seconds, 2e-6, {}});
  }
  return absl::OkStatus();
}

}  // namespace sluice::cuda_testing
