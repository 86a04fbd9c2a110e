#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/ops/cuda/kernels/norm.h"
#include "engine/ops/cuda/kernels/sample.h"
#include "tests/gpu/bench.h"

namespace sluice::cuda_testing {
namespace {

absl::Status Norm(const Bench& bench, int32_t rows, int32_t d) {
  Arena arena(bench.device);
  const int64_t count = int64_t{rows} * d;
  const auto* weight = static_cast<const float*>(arena.Random(d * int64_t{4}));
  const auto* x = static_cast<const float*>(arena.Random(count * 4));
  void* y = arena.Random(count * 2);
  SLUICE_RETURN_IF_ERROR(arena.status());
  cuda::NormArgs args;
  args.num_rows = rows;
  args.d = d;
  args.x = x;
  args.norm.weight = weight;
  args.y = y;
  const double floor = FloorSeconds(6.0 * static_cast<double>(count), 0);
  SLUICE_ASSIGN_OR_RETURN(const double seconds, SecondsOf(bench, floor + 1e-6, [&](int64_t) {
                            cuda::LaunchNorm(args, bench.device->stream());
                          }));
  bench.report->Add({"rows", absl::StrCat("norm ", rows, " x ", d), seconds, floor, {{"rows", rows}}});
  return absl::OkStatus();
}

struct SampleCase {
  const char* name;
  float temperature, top_p;
  int32_t top_k;
};

absl::Status Sample(const Bench& bench, const SampleCase& c, int32_t rows, int32_t vocab) {
  Arena arena(bench.device);
  const int64_t count = int64_t{rows} * vocab;
  std::vector<cuda::SampleRowData> data(static_cast<size_t>(rows));
  for (int32_t row = 0; row < rows; ++row) {
    cuda::SampleRowData& d = data[static_cast<size_t>(row)];
    d = {};
    d.logits_row = row;
    d.temperature = c.temperature, d.top_p = c.top_p, d.top_k = c.top_k;
    d.seed = 1, d.position = row;
  }
  cuda::SampleArgs args;
  args.num_rows = rows;
  args.vocab_size = vocab;
  args.logits = static_cast<const float*>(arena.Random(count * 4));
  args.rows = arena.Copy(data);
  args.ints = static_cast<const int32_t*>(arena.Zeros(4));
  args.floats = static_cast<const float*>(arena.Zeros(4));
  args.scratch = static_cast<float*>(arena.Zeros(count * 4));
  args.counts = static_cast<int32_t*>(arena.Zeros(count * 4));
  args.workspace = arena.Zeros(cuda::SampleWorkspaceBytes(rows, vocab));
  args.tokens = static_cast<int32_t*>(arena.Zeros(rows * int64_t{4}));
  args.finite = static_cast<int32_t*>(arena.Zeros(rows * int64_t{4}));
  SLUICE_RETURN_IF_ERROR(arena.status());
  const double floor = FloorSeconds(4.0 * static_cast<double>(count), 0);
  SLUICE_ASSIGN_OR_RETURN(const double seconds, SecondsOf(bench, floor + 3e-6, [&](int64_t) {
                            cuda::LaunchSample(args, bench.device->stream());
                          }));
  bench.report->Add(
      {"rows", absl::StrCat("sample ", c.name, " ", rows, " x ", vocab), seconds, floor, {{"rows", rows}}});
  return absl::OkStatus();
}

}  // namespace

absl::Status BenchRows(const Bench& bench) {
  for (const int32_t rows : {1, 64, 8192}) {
    if (bench.tiny && rows > 1) break;
    SLUICE_RETURN_IF_ERROR(Norm(bench, rows, bench.tiny ? 64 : 4096));
  }
  for (const SampleCase& c :
       {SampleCase{"greedy", 0, 1, 0}, {"drawn", 1, 1, 0}, {"top_p 0.9", 1, 0.9f, 0}, {"top_k 50", 1, 1, 50}}) {
    for (const int32_t rows : {1, 64}) {
      if (bench.tiny && rows > 1) break;
      SLUICE_RETURN_IF_ERROR(Sample(bench, c, rows, bench.tiny ? 100 : 128256));
    }
  }
  return absl::OkStatus();
}

}  // namespace sluice::cuda_testing
