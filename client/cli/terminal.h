// What every subcommand does the same way: exit codes, text in and out, colour, errors, progress. Text goes to stdout,
// all else to stderr.
#pragma once

#include <signal.h>

#include <cstdint>
#include <filesystem>
#include <string>

#include "absl/status/status.h"
#include "client/cli/live_line.h"

namespace sluice::cli {

constexpr int kExitOk = 0;
constexpr int kExitFailed = 1;  // stdout could not be written; requests of a load test failed
constexpr int kExitUsage = 2;
constexpr int kExitInterrupted = 130;  // SIGINT

// 64 + the gRPC code, grpcurl's convention; 0 for OK.
int ExitCode(const absl::Status& status);

// "sluice: INVALID_ARGUMENT (CONTEXT_LENGTH_EXCEEDED): message" and the field violations on stderr; returns ExitCode.
int Report(const absl::Status& status);

// "sluice: message" on stderr; returns kExitUsage.
int UsageError(const std::string& message);

bool StdinIsTerminal();
bool StdoutIsTerminal();
bool StderrIsTerminal();
// Columns of the terminal on `fd` now; 80 if it does not say.
int TerminalWidth(int fd);
// A terminal on stdout that understands escape sequences.
bool StdoutMovesCursor();
// A terminal on stderr that understands escape sequences, and no NO_COLOR in the environment.
bool UseColour();
// `text` in grey if UseColour(), else as it is.
std::string Dim(const std::string& text);

// All of stdin but one newline at its end, which `echo` adds. False if it is not valid UTF-8 (protobuf strings must
// be).
bool ReadStdin(std::string* text);
bool IsValidUtf8(const std::string& text);
// Whether somebody gave us text on stdin: a pipe or a file with something in it. Waits up to 0.1 s for a pipe's writer.
bool StdinHasText();

// Writes all of it at once. False if that cannot be done (errno says why) or if SIGINT came while it waited.
bool WriteStdout(const std::string& text);
// `text` without what would command a terminal: control characters become ^[ and so on; newline and tab stay.
std::string Printable(const std::string& text);
// \n, \t, \r and \\ in a flag's value; other backslashes stand for themselves.
std::string Unescape(const std::string& text);

// A file of the user's that outlives the program: in $XDG_STATE_HOME/sluice or ~/.local/state/sluice, whose folder is
// made. Empty if there is no home.
std::filesystem::path StateFile(const std::string& name);

// On a terminal's stderr from the first second on, nothing elsewhere: a bar, or the seconds that have passed if the
// total is not known (0). Never longer than a line. Not thread-safe.
class Progress {
 public:
  Progress(std::string label, int64_t total);
  ~Progress();  // hides it
  void Update(int64_t done);
  void Hide();

 private:
  const std::string label_;
  const int64_t total_;
  const int64_t start_ns_;
  int64_t last_ns_ = 0;
  LiveLine line_;
  bool shown_ = false;
};

// The text of a bar: "requests [####....] 4/8", with a shorter bar or none where `width` columns have no room for it.
std::string ProgressText(const std::string& label, int64_t done, int64_t total, int width);

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
