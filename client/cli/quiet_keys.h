// A terminal that does not show what is typed.
#pragma once

#include <signal.h>
#include <termios.h>

#include <vector>

namespace sluice::cli {

// While it lives, keys typed at the terminal on stdin are not shown; they wait for whoever reads next. A signal that
// ends or stops the process meanwhile (SIGTERM, SIGHUP, a crash, Ctrl-Z) first shows them again; after fg they are
// quiet again. SIGINT is left to InterruptScope. Does nothing if stdin is no terminal or the process is in the
// background. One at a time.
class QuietKeys {
 public:
  QuietKeys();
  ~QuietKeys();
  QuietKeys(const QuietKeys&) = delete;
  QuietKeys& operator=(const QuietKeys&) = delete;

 private:
  bool active_ = false;
  std::vector<struct sigaction> previous_;  // one for each signal that is watched
};

}  // namespace sluice::cli
