#include "engine/base/log.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <string>

#include "engine/base/mutex.h"

namespace sluice {
namespace {

constexpr size_t kMaxTextBytes = 16 << 10;

// Of the process, as its stderr is.
std::atomic<LogLevel> g_level{LogLevel::kInfo};
std::atomic<int64_t> g_dropped{0};
std::atomic<LogSink*> g_sink{nullptr};  // changed under the mutex, so that no line is being written to an old one
Mutex& SinkMutex() {
  static Mutex& mutex = *new Mutex;  // threads may log while the process ends
  return mutex;
}

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

// The length of the printable character that `text` begins with; 0 if there is none. C1 controls, marks that turn the
// direction of a line and line separators are not.
size_t PrintableLength(absl::string_view text) {
  const auto at = [text](size_t i) { return i < text.size() ? uint8_t(text[i]) : 0; };
  const auto continues = [at](size_t i) { return (at(i) & 0xC0) == 0x80; };
  const uint8_t lead = at(0);
  if (lead < 0x80) return lead >= 0x20 && lead != 0x7F ? 1 : 0;
  const size_t length = lead >= 0xC2 && lead < 0xE0 ? 2 : lead >= 0xE0 && lead < 0xF0 ? 3 : lead >= 0xF0 ? 4 : 0;
  if (length == 0 || lead > 0xF4) return 0;
  uint32_t code_point = lead & (0xFFu >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if (!continues(i)) return 0;
    code_point = code_point << 6 | (at(i) & 0x3Fu);
  }
  const auto within = [code_point](uint32_t first, uint32_t last) { return code_point >= first && code_point <= last; };
  const uint32_t shortest[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code_point < shortest[length] || code_point > 0x10FFFF || within(0xD800, 0xDFFF)) return 0;
  const bool control = within(0x80, 0x9F) || within(0x2028, 0x202E) || within(0x2066, 0x2069) || code_point == 0xFEFF;
  return control ? 0 : length;
}

void AppendPrintable(absl::string_view text, std::string* line) {
  while (!text.empty()) {
    size_t length = PrintableLength(text);
    if (length > 0) {
      line->append(text.data(), length);
    } else {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\x%02x", unsigned(uint8_t(text.front())));
      line->append(escaped);
      length = 1;
    }
    text.remove_prefix(length);
  }
}

std::string Head(LogLevel level) {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const int millis = int(std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char head[64];
  const size_t date = std::strftime(head, sizeof head, "%Y-%m-%dT%H:%M:%S", &utc);
  const int rest = std::snprintf(head + date, sizeof head - date, ".%03dZ %s ", millis, Name(level));
  return std::string(head, date + size_t(rest));
}

}  // namespace

void SetLogLevel(LogLevel level) { g_level = level; }
bool LogsAt(LogLevel level) { return level >= g_level.load(std::memory_order_relaxed); }

void Log(LogLevel level, absl::string_view text) {
  if (!LogsAt(level)) return;
  std::string line = Head(level);
  AppendPrintable(text.substr(0, kMaxTextBytes), &line);
  line.append(text.size() > kMaxTextBytes ? "...\n" : "\n");
  {
    MutexLock lock(&SinkMutex());
    if (LogSink* sink = g_sink.load(); sink != nullptr) return sink->Write(line);
  }
  // A log line that cannot be written has nowhere else to go. One write per line, so lines of several threads do not mix.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
}

void SetLogSink(LogSink* sink) {
  MutexLock lock(&SinkMutex());
  g_sink.store(sink);
}

void FlushLog() {
  if (LogSink* sink = g_sink.load(); sink != nullptr) sink->Flush();
}

void CountDroppedLogLines(int64_t count) { g_dropped.fetch_add(count, std::memory_order_relaxed); }
int64_t DroppedLogLines() { return g_dropped.load(std::memory_order_relaxed); }

}  // namespace sluice
