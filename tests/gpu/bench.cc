// Small measurements of a GPU and of single kernels on it.
#include "tests/gpu/bench.h"

#include <algorithm>
#include <string>
#include <vector>

#include "engine/base/status_macros.h"
#include "tests/gpu/program.h"

namespace sluice::cuda_testing {
namespace {

struct Part {
  const char* name;
  absl::Status (*run)(const Bench&);
};
constexpr Part kParts[] = {{"memory", BenchMemory},   {"nodes", BenchNodes},     {"gemm", BenchGemm},
                           {"formats", BenchFormats}, {"experts", BenchExperts}, {"attention", BenchAttention},
                           {"rows", BenchRows}};

absl::Status Run(const ProgramArgs& args, std::unique_ptr<Device> device, Report* report) {
  const Bench bench{device.get(), report, args.tiny};
  for (const Part& part : kParts) {
    if (std::find(args.names.begin(), args.names.end(), part.name) == args.names.end()) continue;
    SLUICE_RETURN_IF_ERROR(part.run(bench));
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace sluice::cuda_testing

int main(int argc, char** argv) {
  using namespace sluice::cuda_testing;
  std::vector<std::string> names;
  for (const Part& part : kParts) names.push_back(part.name);
  return RunProgram(argc, argv, names, Run);
}
