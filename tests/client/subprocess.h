// The real `sluice` binary, run with pipes or at a terminal of its own.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

namespace sluice::cli {

struct Output {
  int code = -1;    // exit code
  int signal = 0;   // or the signal that ended it
  std::string out;  // stdout
  std::string err;  // stderr
};

// A running `sluice`. Whatever it waits for, it waits 60 s at most and then fails the test. The environment is a small
// fixed one (no HOME, no SLUICE_*, no proxy) and `environment`.
class Process {
 public:
  using Environment = std::map<std::string, std::string>;

  // With pipes; stdin holds `input`.
  Process(const std::vector<std::string>& arguments, const std::string& input, const Environment& environment = {});
  // All three at one new terminal.
  static Process AtTerminal(const std::vector<std::string>& arguments, const Environment& environment = {},
                            int columns = 80);
  ~Process();  // kills it
  Process(Process&& other) noexcept;
  Process(const Process&) = delete;

  void Signal(int signal);
  // Gives the terminal another width, which the program is told by SIGWINCH.
  void Resize(int columns);
  // Types at the terminal.
  void Type(const std::string& keys);
  // The local modes (c_lflag of termios) that the program has given its terminal.
  unsigned TerminalModes() const;
  // The same, once it has ended.
  unsigned ModesAtEnd();
  // Until stdout, or the terminal's output since the last call, holds `text`; returns what came up to its end.
  std::string Expect(const std::string& text);
  // Reads no more and closes our end of stdout.
  void CloseStdout();
  // Reads to the end.
  Output Wait();

 private:
  Process() = default;
  void Start(const std::vector<std::string>& arguments, const Environment& environment, int in, int out, int err,
             const std::string& terminal);
  bool ReadSome();  // false at the end of both

  pid_t pid_ = -1;
  int in_ = -1, out_ = -1, err_ = -1;
  std::string out_text_, err_text_;
  size_t seen_ = 0;  // of out_text_, by Expect
};

// Runs it to its end.
Output RunSluice(const std::vector<std::string>& arguments, const std::string& input = "",
                 const Process::Environment& environment = {});

}  // namespace sluice::cli
