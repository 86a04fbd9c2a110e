#include "client/cli/terminal.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/cpp/client.h"

namespace sluice::cli {
namespace {

// Signal handlers can reach nothing but a global.
std::atomic<bool> g_interrupted{false};

void OnInterrupt(int) { g_interrupted = true; }

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool UnderstandsEscapes() { return Environment("TERM") != "dumb"; }
bool FancyStderr() { return StderrIsTerminal() && UnderstandsEscapes(); }

}  // namespace

int ExitCode(const absl::Status& status) { return status.ok() ? kExitOk : 64 + status.raw_code(); }

int Report(const absl::Status& status) {
  if (status.ok()) return kExitOk;
  const client::ErrorDetails details = client::GetErrorDetails(status);
  std::string line = absl::StrCat("sluice: ", absl::StatusCodeToString(status.code()));
  if (!details.reason.empty()) absl::StrAppend(&line, " (", details.reason, ")");
  absl::StrAppend(&line, ": ", status.message(), "\n");
  for (const auto& violation : details.fields) {
    if (absl::StrContains(status.message(), violation.description)) continue;  // said already
    absl::StrAppend(&line, "  ", violation.field, ": ", violation.description, "\n");
  }
  const bool wrong_address = details.reason.empty() && (absl::IsUnavailable(status) || absl::IsUnimplemented(status));
  if (wrong_address) {
    absl::StrAppend(&line,
                    "  check that the server runs, and the address: --server is its gRPC port (50051 by default), ",
                    "--admin its admin port (8002)\n");
  }
  if (details.retry_after) absl::StrAppend(&line, "  try again in ", details.retry_after->count(), " ms\n");
  std::cerr << (StderrIsTerminal() ? Printable(line) : line) << std::flush;
  return ExitCode(status);
}

int UsageError(const std::string& message) {
  std::cerr << "sluice: " << message << "\n";
  return kExitUsage;
}

bool StdinIsTerminal() { return isatty(STDIN_FILENO) == 1; }
bool StdoutIsTerminal() { return isatty(STDOUT_FILENO) == 1; }
bool StderrIsTerminal() { return isatty(STDERR_FILENO) == 1; }

int TerminalWidth(int fd) {
  winsize size{};
  return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

bool StdoutMovesCursor() { return StdoutIsTerminal() && UnderstandsEscapes(); }

bool UseColour() { return FancyStderr() && Environment("NO_COLOR").empty(); }

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

bool StdinHasText() {
  struct stat file{};
  if (fstat(STDIN_FILENO, &file) != 0) return false;
  if (S_ISREG(file.st_mode)) return lseek(STDIN_FILENO, 0, SEEK_CUR) < file.st_size;
  if (!S_ISFIFO(file.st_mode)) return false;
  constexpr int kPatienceMs = 100;
  pollfd stdin_ready = {STDIN_FILENO, POLLIN, 0};
  int bytes = 0;  // none at the end of a pipe, which is ready, too
  return poll(&stdin_ready, 1, kPatienceMs) > 0 && ioctl(STDIN_FILENO, FIONREAD, &bytes) == 0 && bytes > 0;
}

bool ReadStdin(std::string* text) {
  text->assign(std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>());
  if (absl::EndsWith(*text, "\n")) text->pop_back();
  return IsValidUtf8(*text);
}

bool WriteStdout(const std::string& text) {
  // A signal that comes between a look at its flag and a write that waits would be lost. So no write waits: a pipe that
  // is ready takes PIPE_BUF bytes at once.
  constexpr int kLookMs = 20;
  for (size_t written = 0; written < text.size();) {
    pollfd stdout_ready = {STDOUT_FILENO, POLLOUT, 0};
    if (poll(&stdout_ready, 1, kLookMs) > 0) {
      const ssize_t n =
          write(STDOUT_FILENO, text.data() + written, std::min<size_t>(text.size() - written, PIPE_BUF));
      if (n >= 0) {
        written += size_t(n);
      } else if (errno != EINTR && errno != EAGAIN) {
        return false;
      }
    }
    if (written < text.size() && InterruptScope::Interrupted()) return false;
  }
  return true;
}

std::string Printable(const std::string& text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const bool c1 = c == 0xC2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xA0;
    if (c1) {
      result += "\uFFFD";
      ++i;
    } else if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7F) {
      result += {'^', char(c ^ 0x40)};
    } else {
      result += text[i];
    }
  }
  return result;
}

std::string Unescape(const std::string& text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    const char next = text[i] == '\\' && i + 1 < text.size() ? text[i + 1] : '\0';
    const char meant = next == 'n' ? '\n' : next == 't' ? '\t' : next == 'r' ? '\r' : next == '\\' ? '\\' : '\0';
    result += meant != '\0' ? meant : text[i];
    if (meant != '\0') ++i;
  }
  return result;
}

std::filesystem::path StateFile(const std::string& name) {
  const std::string state = Environment("XDG_STATE_HOME"), home = Environment("HOME");
  if (state.empty() && home.empty()) return {};
  const auto folder =
      (state.empty() ? std::filesystem::path(home) / ".local" / "state" : std::filesystem::path(state)) / "sluice";
  std::error_code ignored;  // whoever opens the file will see
  std::filesystem::create_directories(folder, ignored);
  return folder / name;
}

int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

Progress::Progress(std::string label, int64_t total) : label_(std::move(label)), total_(total), start_ns_(NowNs()) {}

Progress::~Progress() { Hide(); }

std::string ProgressText(const std::string& label, int64_t done, int64_t total, int width) {
  constexpr int kLongestBar = 30, kShortestBar = 5;
  const std::string counts = absl::StrCat(done, "/", total);
  const int bar =
      std::min(kLongestBar, width - 1 - int(label.size() + counts.size()) - int(std::string(" [] ").size()));
  if (bar < kShortestBar) return absl::StrCat(label, " ", counts);
  const int64_t filled = bar * std::min(done, total) / total;
  return absl::StrCat(label, " [", std::string(size_t(filled), '#'), std::string(size_t(bar - filled), '.'), "] ",
                      counts);
}

void Progress::Update(int64_t done) {
  const int64_t now = NowNs();
  if (!FancyStderr() || now - start_ns_ < 1'000'000'000 || now - last_ns_ < 100'000'000) return;
  last_ns_ = now;
  shown_ = true;
  const int width = TerminalWidth(STDERR_FILENO);
  const std::string text = total_ > 0 ? ProgressText(label_, done, total_, width)
                                      : absl::StrCat(label_, " ", (now - start_ns_) / 1'000'000'000, " s");
  std::cerr << line_.Draw(text, width) << std::flush;
}

void Progress::Hide() {
  if (shown_) std::cerr << line_.Clear(TerminalWidth(STDERR_FILENO)) << std::flush;
  shown_ = false;
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
