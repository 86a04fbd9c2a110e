// What every subcommand does the same way: exit codes, colour, errors, progress. Text goes to stdout, all else to
// stderr.
#pragma once

#include <signal.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace sluice::cli {

constexpr int kExitOk = 0;
constexpr int kExitUsage = 2;
constexpr int kExitInterrupted = 130;  // SIGINT

// 64 + the gRPC code, grpcurl's convention; 0 for OK.
int ExitCode(const absl::Status& status);

// "sluice: INVALID_ARGUMENT (CONTEXT_LENGTH_EXCEEDED): message" and the field violations on stderr; returns ExitCode.
int Report(const absl::Status& status);

// A usage error that CLI11 cannot see; returns kExitUsage.
int UsageError(const std::string& message);

bool StdinIsTerminal();
bool StdoutIsTerminal();
bool StderrIsTerminal();
// A terminal on stderr and no NO_COLOR in the environment.
bool UseColour();
// `text` in grey if UseColour(), else as it is.
std::string Dim(const std::string& text);

// All of stdin. False if it is not valid UTF-8 (protobuf strings must be).
bool ReadStdin(std::string* text);
bool IsValidUtf8(const std::string& text);

// A bar on a terminal's stderr from the first second on, nothing elsewhere. Not thread-safe.
class Progress {
 public:
  Progress(std::string label, int64_t total);
  ~Progress();  // removes the bar
  void Update(int64_t done);

 private:
  void Clear();
  const std::string label_;
  const int64_t total_;
  const int64_t start_ns_;
  int64_t last_ns_ = 0;
  bool shown_ = false;
};

int64_t NowNs();  // steady

// From its making until its end SIGINT only sets a flag, so that an answer can be cancelled without ending the program.
// Scopes nest like blocks.
class InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();
  static bool Interrupted();

 private:
  struct sigaction previous_;
};

}  // namespace sluice::cli
