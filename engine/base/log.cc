#include "engine/base/log.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <string>

namespace sluice {
namespace {

std::atomic<LogLevel> g_level{LogLevel::kInfo};

const char* Name(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "DEBUG";
    case LogLevel::kInfo:
      return "INFO";
    case LogLevel::kWarning:
      return "WARNING";
    case LogLevel::kError:
      return "ERROR";
  }
  return "?";
}

}  // namespace

void SetLogLevel(LogLevel level) { g_level = level; }

void Log(LogLevel level, absl::string_view text) {
  if (level < g_level.load(std::memory_order_relaxed)) return;
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const int millis = int(std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char head[64];
  const size_t date = std::strftime(head, sizeof head, "%Y-%m-%dT%H:%M:%S", &utc);
  const int rest = std::snprintf(head + date, sizeof head - date, ".%03dZ %s ", millis, Name(level));
  std::string line(head, date + size_t(rest));
  line.append(text.data(), text.size());
  line.push_back('\n');
  // A log line that cannot be written has nowhere else to go.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace sluice
