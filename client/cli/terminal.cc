#include "client/cli/terminal.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <iterator>

#include "client/cpp/client.h"

namespace sluice::cli {
namespace {

// Signal handlers can reach nothing but a global.
std::atomic<bool> g_interrupted{false};

void OnInterrupt(int) { g_interrupted = true; }

}  // namespace

int ExitCode(const absl::Status& status) { return status.ok() ? kExitOk : 64 + status.raw_code(); }

int Report(const absl::Status& status) {
  if (status.ok()) return kExitOk;
  const client::ErrorDetails details = client::GetErrorDetails(status);
  std::string line = "sluice: " + absl::StatusCodeToString(status.code());
  if (!details.reason.empty()) line += " (" + details.reason + ")";
  line += ": " + std::string(status.message()) + "\n";
  for (const auto& violation : details.fields) line += "  " + violation.field + ": " + violation.description + "\n";
  if (details.retry_after) line += "  try again in " + std::to_string(details.retry_after->count()) + " ms\n";
  std::cerr << line << std::flush;
  return ExitCode(status);
}

int UsageError(const std::string& message) {
  std::cerr << "sluice: " << message << "\n";
  return kExitUsage;
}

bool StdinIsTerminal() { return isatty(STDIN_FILENO) == 1; }
bool StdoutIsTerminal() { return isatty(STDOUT_FILENO) == 1; }
bool StderrIsTerminal() { return isatty(STDERR_FILENO) == 1; }

bool UseColour() {
  const char* no_color = std::getenv("NO_COLOR");
  return StderrIsTerminal() && (no_color == nullptr || *no_color == '\0');
}

std::string Dim(const std::string& text) { return UseColour() ? "\033[2m" + text + "\033[0m" : text; }

bool IsValidUtf8(const std::string& text) {
  const auto* p = reinterpret_cast<const unsigned char*>(text.data());
  const auto* end = p + text.size();
  while (p < end) {
    const int length = *p < 0x80                 ? 1
                       : *p >= 0xC2 && *p < 0xE0 ? 2
                       : (*p & 0xF0) == 0xE0     ? 3
                       : *p >= 0xF0 && *p < 0xF5 ? 4
                                                 : 0;
    if (length == 0 || end - p < length) return false;
    for (int i = 1; i < length; ++i) {
      if ((p[i] & 0xC0) != 0x80) return false;
    }
    const bool overlong = (*p == 0xE0 && p[1] < 0xA0) || (*p == 0xF0 && p[1] < 0x90);
    const bool surrogate = *p == 0xED && p[1] > 0x9F;
    if (overlong || surrogate || (*p == 0xF4 && p[1] > 0x8F)) return false;
    p += length;
  }
  return true;
}

bool ReadStdin(std::string* text) {
  text->assign(std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>());
  return IsValidUtf8(*text);
}

int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

Progress::Progress(std::string label, int64_t total) : label_(std::move(label)), total_(total), start_ns_(NowNs()) {}

Progress::~Progress() { Clear(); }

void Progress::Update(int64_t done) {
  const int64_t now = NowNs();
  if (!StderrIsTerminal() || total_ <= 0 || now - start_ns_ < 1'000'000'000 || now - last_ns_ < 100'000'000) return;
  last_ns_ = now;
  shown_ = true;
  constexpr int kWidth = 30;
  const int filled = int(kWidth * done / total_);
  std::fprintf(stderr, "\r\033[K%s [%s%s] %lld/%lld", label_.c_str(), std::string(size_t(filled), '#').c_str(),
               std::string(size_t(kWidth - filled), '.').c_str(), static_cast<long long>(done),
               static_cast<long long>(total_));
  std::fflush(stderr);
}

void Progress::Clear() {
  if (shown_) std::fputs("\r\033[K", stderr);
}

InterruptScope::InterruptScope() {
  g_interrupted = false;
  struct sigaction action {};
  action.sa_handler = OnInterrupt;
  sigaction(SIGINT, &action, &previous_);
}

InterruptScope::~InterruptScope() { sigaction(SIGINT, &previous_, nullptr); }
bool InterruptScope::Interrupted() { return g_interrupted; }

}  // namespace sluice::cli
