#include "client/cli/quiet_keys.h"

#include <unistd.h>

#include <cerrno>

namespace sluice::cli {
namespace {

// What ends or stops a process, but SIGINT, which has a meaning while an answer comes, and SIGKILL and SIGSTOP.
constexpr int kSignals[] = {SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGABRT, SIGALRM, SIGUSR1, SIGUSR2,
                            SIGSEGV, SIGBUS, SIGFPE,  SIGILL,  SIGXCPU, SIGTSTP, SIGCONT};

// Signal handlers can reach nothing but globals. Written before the handlers are there.
termios g_shown, g_quiet;

// What the others of a job see must not change while the job is not in front; and the terminal would stop the process.
bool InForeground() { return tcgetpgrp(STDIN_FILENO) == getpgrp(); }

// Ends or stops the process as if nobody had caught the signal; comes back after a stop.
void RaiseAgain(int signal) {
  struct sigaction by_default{}, ours;
  by_default.sa_handler = SIG_DFL;
  sigaction(signal, &by_default, &ours);
  sigset_t only, mask;
  sigemptyset(&only);
  sigaddset(&only, signal);
  raise(signal);
  sigprocmask(SIG_UNBLOCK, &only, &mask);
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  sigaction(signal, &ours, nullptr);
}

void OnSignal(int signal) {
  const int error = errno;
  if (signal != SIGCONT) {
    if (InForeground()) tcsetattr(STDIN_FILENO, TCSANOW, &g_shown);
    RaiseAgain(signal);
  }
  // Here again: after SIGCONT, or a stop that is over or that the kernel refused (a job that no shell could continue).
  if (InForeground()) tcsetattr(STDIN_FILENO, TCSANOW, &g_quiet);
  errno = error;
}

}  // namespace

QuietKeys::QuietKeys() {
  if (isatty(STDIN_FILENO) != 1 || !InForeground() || tcgetattr(STDIN_FILENO, &g_shown) != 0) return;
  active_ = true;
  g_quiet = g_shown;
  g_quiet.c_lflag &= ~tcflag_t(ECHO);
  struct sigaction action{};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_RESTART;
  sigfillset(&action.sa_mask);  // one at a time
  for (int signal : kSignals) {
    struct sigaction& previous = previous_.emplace_back();
    sigaction(signal, nullptr, &previous);
    // What the parent had us ignore (nohup) stays ignored, and the handlers of others stay.
    if (previous.sa_handler == SIG_DFL) sigaction(signal, &action, nullptr);
  }
  tcsetattr(STDIN_FILENO, TCSANOW, &g_quiet);
}

QuietKeys::~QuietKeys() {
  if (!active_) return;
  if (InForeground()) tcsetattr(STDIN_FILENO, TCSANOW, &g_shown);
  size_t i = 0;
  for (int signal : kSignals) sigaction(signal, &previous_[i++], nullptr);
}

}  // namespace sluice::cli
