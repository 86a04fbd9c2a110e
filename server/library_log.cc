#include "server/library_log.h"

#include <grpc/support/log.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/mutex.h"
#include "google/protobuf/stubs/logging.h"

namespace sluice {
namespace {

constexpr size_t kMaxMessageBytes = 512;
constexpr int kBurst = 20, kPerSecond = 2;

void LogLine(LogLevel level, absl::string_view library, absl::string_view file, int line, absl::string_view message) {
  if (!LogsAt(level)) return;
  static Mutex& mutex = *new Mutex;
  static LineLimiter& limiter = *new LineLimiter(kBurst, kPerSecond);
  int64_t num_left_out = 0;
  {
    MutexLock lock(&mutex);
    if (!limiter.Allow(Clock::Real().NowNs())) return CountDroppedLogLines(1);
    num_left_out = limiter.TakeNumLeftOut();
  }
  if (num_left_out > 0) LogWarning(absl::StrCat(num_left_out, " log lines of gRPC and protobuf were dropped"));
  file = file.substr(file.rfind('/') + 1);  // npos + 1 is 0
  Log(level, absl::StrCat(library, " ", file, ":", line, ": ", message.substr(0, kMaxMessageBytes),
                          message.size() > kMaxMessageBytes ? "..." : ""));
}

void OnGrpcLog(gpr_log_func_args* args) {
  const LogLevel level = args->severity == GPR_LOG_SEVERITY_ERROR  ? LogLevel::kError
                         : args->severity == GPR_LOG_SEVERITY_INFO ? LogLevel::kInfo
                                                                   : LogLevel::kDebug;
  LogLine(level, "gRPC", args->file, args->line, args->message);
}

void OnProtobufLog(google::protobuf::LogLevel level, const char* file, int line, const std::string& message) {
  const LogLevel ours = level == google::protobuf::LOGLEVEL_INFO      ? LogLevel::kInfo
                        : level == google::protobuf::LOGLEVEL_WARNING ? LogLevel::kWarning
                                                                      : LogLevel::kError;
  LogLine(ours, "protobuf", file, line, message);
}

}  // namespace

bool LineLimiter::Allow(int64_t now_ns) {
  tokens_ = std::min(burst_, tokens_ + per_second_ * 1e-9 * double(std::max<int64_t>(0, now_ns - last_ns_)));
  last_ns_ = now_ns;
  if (tokens_ < 1) {
    ++num_left_out_;
    return false;
  }
  tokens_ -= 1;
  return true;
}

int64_t LineLimiter::TakeNumLeftOut() { return std::exchange(num_left_out_, 0); }

void LogLibrariesThroughOurs() {
  gpr_set_log_function(OnGrpcLog);
  google::protobuf::SetLogHandler(OnProtobufLog);
}

}  // namespace sluice
