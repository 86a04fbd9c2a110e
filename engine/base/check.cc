#include "engine/base/check.h"

#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "engine/base/log.h"

namespace sluice {

void CheckFailed(const char* condition, const char* file, int line) {
  FlushLog();
  char text[1024];
  const int length = std::snprintf(text, sizeof text, "%s:%d: CHECK failed: %s\n", file, line, condition);
  // Whoever does not read stderr must not keep the process from ending.
  pollfd ready{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
  if (poll(&ready, 1, 100) == 1) {
    const size_t size = size_t(length) < sizeof text ? size_t(length) : sizeof text - 1;
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, size);
  }
  std::abort();
}

}  // namespace sluice
