// Log lines: `2026-11-29T16:30:01.123Z INFO text`. A line is one line whatever its text holds: what is not printable
// comes as \xNN, and a long text is cut. Prompts and outputs of users never go into a log line.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace sluice {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// Thread-safe.
void Log(LogLevel level, absl::string_view text);
inline void LogInfo(absl::string_view text) { Log(LogLevel::kInfo, text); }
inline void LogWarning(absl::string_view text) { Log(LogLevel::kWarning, text); }
inline void LogError(absl::string_view text) { Log(LogLevel::kError, text); }

// Lines below `level` are dropped. Starts at kInfo. Thread-safe.
void SetLogLevel(LogLevel level);
bool LogsAt(LogLevel level);

// Where lines go, each with its newline. Without one they are written to stderr by the thread that logs.
class LogSink {
 public:
  virtual ~LogSink() = default;
  // One call at a time; must not wait and must not log.
  virtual void Write(absl::string_view line) = 0;
  // Returns when what has been written is out, or after a moment. Async-signal-safe.
  virtual void Flush() = 0;
};

// The sink must be there until another is set; null: stderr. Thread-safe.
void SetLogSink(LogSink* sink);
// LogSink::Flush. Before a process ends by another way than main's return. Async-signal-safe.
void FlushLog();

// Lines that somebody left out for lack of room or of patience, since the process began. Thread-safe.
void CountDroppedLogLines(int64_t count);
int64_t DroppedLogLines();

}  // namespace sluice
