#include "server/load_guard.h"

#include <unistd.h>

#include "engine/base/log.h"

namespace sluice {
namespace {

// Nothing but what a signal handler may call. The file itself is not known here.
void OnBusError(int) {
  constexpr char kText[] =
      "sluice-server: a file of the model was cut short while it was being read, or its disk failed; start again with "
      "whole files\n";
  FlushLog();
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kText, sizeof(kText) - 1);
  _exit(1);
}

}  // namespace

LoadGuard::LoadGuard() {
  struct sigaction action = {};
  action.sa_handler = OnBusError;
  sigaction(SIGBUS, &action, &before_);
}

LoadGuard::~LoadGuard() { sigaction(SIGBUS, &before_, nullptr); }

}  // namespace sluice
