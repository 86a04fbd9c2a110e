// Log lines on stderr: `2026-11-29T16:30:01.123Z INFO text`. One write per line, so lines of several threads do not
// mix. Prompts and outputs of users never go into a log line.
#pragma once

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

}  // namespace sluice
