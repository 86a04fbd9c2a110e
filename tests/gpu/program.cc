#include "tests/gpu/program.h"

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/cuda/test_device.h"
#include "tests/gpu/exit_codes.h"

namespace sluice::cuda_testing {
namespace {

constexpr int kBadArguments = 2;

// Nothing, with the reason on stderr, if an argument is not one.
std::optional<ProgramArgs> Parse(int argc, char** argv, const std::vector<std::string>& known) {
  ProgramArgs args;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--tiny") {
      args.tiny = true;
    } else if (argument == "--json" && i + 1 < argc) {
      args.json = argv[++i];
    } else if (std::find(known.begin(), known.end(), argument) != known.end()) {
      args.names.push_back(argument);
    } else {
      std::cerr << argument << ": expected --tiny, --json FILE or some of: " << absl::StrJoin(known, " ") << std::endl;
      return std::nullopt;
    }
  }
  if (args.names.empty()) args.names = known;
  return args;
}

int Tell(const absl::Status& status, int exit_code) {
  std::cerr << status.message() << std::endl;
  return exit_code;
}

}  // namespace

int RunProgram(int argc, char** argv, const std::vector<std::string>& known, ProgramBody run) {
  const std::optional<ProgramArgs> args = Parse(argc, argv, known);
  if (!args.has_value()) return kBadArguments;
  absl::StatusOr<std::unique_ptr<Device>> device = NewTestDevice();
  if (!device.ok()) return Tell(device.status(), kNoGpu);
  absl::StatusOr<Report> report = Report::Open(args->json);
  if (!report.ok()) return Tell(report.status(), kBadArguments);
  report->Note("device", absl::StrCat((*device)->Name(), ", ", (*device)->num_sms(), " SMs, ",
                                      (*device)->FreeBytes() >> 20, " MiB free"));
  const absl::Status status = run(*args, *std::move(device), &*report);
  return status.ok() ? 0 : Tell(status, 1);
}

}  // namespace sluice::cuda_testing
