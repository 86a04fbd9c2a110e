#include "server/log_writer.h"

#include <poll.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

constexpr int kFlushMs = 1000;

// All of `text`, however long it takes; what cannot be written at all is lost.
void WriteAll(int fd, absl::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written > 0) {
      text.remove_prefix(size_t(written));
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return;
    // Somebody has made it a descriptor that does not wait.
    pollfd ready{.fd = fd, .events = POLLOUT, .revents = 0};
    poll(&ready, 1, -1);
  }
}

void OnCrash(int) { FlushLog(); }  // the signal comes again, and does what it does by default

}  // namespace

LogWriter::LogWriter(int fd, size_t max_waiting_bytes) : state_(std::make_shared<State>()) {
  state_->fd = fd;
  state_->max_waiting_bytes = max_waiting_bytes;
  // Signals are for the threads that wait for them.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread([state = state_] { Loop(state); }).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

LogWriter::~LogWriter() {
  Flush();
  MutexLock lock(&state_->mutex);
  state_->stopping = true;
  state_->changed.NotifyAll();
}

void LogWriter::Write(absl::string_view line) {
  MutexLock lock(&state_->mutex);
  if (state_->unwritten_bytes + line.size() > state_->max_waiting_bytes) {
    ++state_->num_dropped;
    CountDroppedLogLines(1);
    return;
  }
  state_->unwritten_bytes += line.size();
  state_->waiting.append(line.data(), line.size());
  state_->changed.NotifyAll();
}

void LogWriter::Flush() {
  const timespec millisecond{0, 1'000'000};
  for (int i = 0; i < kFlushMs && state_->unwritten_bytes > 0; ++i) nanosleep(&millisecond, nullptr);
}

void LogWriter::Loop(const std::shared_ptr<State>& state) {
  while (true) {
    std::string lines;
    int64_t num_dropped = 0;
    {
      MutexLock lock(&state->mutex);
      while (state->waiting.empty() && !state->stopping) state->changed.Wait(&state->mutex);
      if (state->waiting.empty()) return;
      lines = std::exchange(state->waiting, {});
    }
    WriteAll(state->fd, lines);
    {
      MutexLock lock(&state->mutex);
      num_dropped = std::exchange(state->num_dropped, 0);
    }
    state->unwritten_bytes -= lines.size();
    if (num_dropped > 0) {
      LogWarning(absl::StrCat(num_dropped, " log lines were dropped: stderr is not read fast enough"));
    }
  }
}

void FlushLogOnCrash() {
  for (int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGILL, SIGFPE}) {
    struct sigaction now {};
    if (sigaction(signal, nullptr, &now) != 0 || now.sa_handler != SIG_DFL) continue;
    struct sigaction ours {};
    ours.sa_handler = OnCrash;
    ours.sa_flags = SA_RESETHAND;
    sigaction(signal, &ours, nullptr);
  }
}

}  // namespace sluice
