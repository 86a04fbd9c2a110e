#include "tests/client/subprocess.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>
#include <utility>

namespace sluice::cli {
namespace {

constexpr int kPatienceMs = 60'000;

std::pair<int, int> MakePipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) std::abort();
  return {ends[0], ends[1]};
}

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

void Process::Start(const std::vector<std::string>& arguments, const Environment& environment, int in, int out, int err,
                    const std::string& terminal) {
  std::vector<std::string> argv = {SLUICE_BINARY};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  Environment all = {{"PATH", "/usr/bin:/bin"}, {"TERM", "xterm"}};
  for (const char* name : {"ASAN_OPTIONS", "LSAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS"}) {
    if (const char* value = std::getenv(name)) all[name] = value;
  }
  for (const auto& [name, value] : environment) all[name] = value;
  std::vector<std::string> envp;
  for (const auto& [name, value] : all) envp.push_back(name + "=" + value);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  short flags = POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK;
  if (terminal.empty()) {
    posix_spawn_file_actions_adddup2(&actions, in, 0);
    posix_spawn_file_actions_adddup2(&actions, out, 1);
    posix_spawn_file_actions_adddup2(&actions, err, 2);
  } else {
    // The first terminal that the leader of a session opens becomes the one that Ctrl-C comes from.
    flags |= POSIX_SPAWN_SETSID;
    posix_spawn_file_actions_addopen(&actions, 0, terminal.c_str(), O_RDWR, 0);
    posix_spawn_file_actions_adddup2(&actions, 0, 1);
    posix_spawn_file_actions_adddup2(&actions, 0, 2);
  }
  sigset_t defaults, mask;
  sigemptyset(&mask);
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGPIPE);
  sigaddset(&defaults, SIGINT);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setsigmask(&attributes, &mask);
  posix_spawnattr_setflags(&attributes, flags);
  const int error =
      posix_spawn(&pid_, SLUICE_BINARY, &actions, &attributes, Pointers(argv).data(), Pointers(envp).data());
  if (error != 0) ADD_FAILURE() << "cannot run " << SLUICE_BINARY << ": error " << error;
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
}

Process::Process(const std::vector<std::string>& arguments, const std::string& input, const Environment& environment) {
  const auto [stdin_read, stdin_write] = MakePipe();
  const auto [stdout_read, stdout_write] = MakePipe();
  const auto [stderr_read, stderr_write] = MakePipe();
  Start(arguments, environment, stdin_read, stdout_write, stderr_write, "");
  close(stdin_read);
  close(stdout_write);
  close(stderr_write);
  out_ = stdout_read;
  err_ = stderr_read;
  // More than a pipe holds is written beside the reading; a program that does not read it ends the writing by EPIPE.
  std::thread([fd = stdin_write, input] {
    signal(SIGPIPE, SIG_IGN);
    for (size_t written = 0; written < input.size();) {
      const ssize_t n = write(fd, input.data() + written, input.size() - written);
      if (n <= 0) break;
      written += size_t(n);
    }
    close(fd);
  }).detach();
}

Process Process::AtTerminal(const std::vector<std::string>& arguments, const Environment& environment, int columns) {
  Process process;
  int ours, theirs;
  char name[128];
  const winsize size = {24, static_cast<unsigned short>(columns), 0, 0};
  if (openpty(&ours, &theirs, name, nullptr, &size) != 0) std::abort();
  fcntl(ours, F_SETFD, FD_CLOEXEC);
  fcntl(theirs, F_SETFD, FD_CLOEXEC);
  process.Start(arguments, environment, -1, -1, -1, name);
  close(theirs);
  process.in_ = dup(ours);
  process.out_ = ours;
  return process;
}

Process::Process(Process&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      in_(std::exchange(other.in_, -1)),
      out_(std::exchange(other.out_, -1)),
      err_(std::exchange(other.err_, -1)),
      out_text_(std::move(other.out_text_)),
      err_text_(std::move(other.err_text_)),
      seen_(other.seen_) {}

Process::~Process() {
  for (int fd : {in_, out_, err_}) {
    if (fd >= 0) close(fd);
  }
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void Process::Signal(int signal) { kill(pid_, signal); }

void Process::Type(const std::string& keys) { ASSERT_EQ(write(in_, keys.data(), keys.size()), ssize_t(keys.size())); }

void Process::Resize(int columns) {
  const winsize size = {24, static_cast<unsigned short>(columns), 0, 0};
  if (ioctl(in_, TIOCSWINSZ, &size) != 0) std::abort();
}

unsigned Process::TerminalModes() const {
  termios modes{};
  if (tcgetattr(in_, &modes) != 0) std::abort();  // either end of a pseudoterminal knows
  return modes.c_lflag;
}

unsigned Process::ModesAtEnd() {
  siginfo_t info;
  waitid(P_PID, id_t(pid_), &info, WEXITED | WNOWAIT);
  return TerminalModes();
}

void Process::CloseStdout() {
  close(out_);
  out_ = -1;
}

bool Process::ReadSome() {
  pollfd fds[2] = {{out_, POLLIN, 0}, {err_, POLLIN, 0}};
  if (poll(fds, 2, kPatienceMs) <= 0) {
    ADD_FAILURE() << "nothing more came; stdout so far:\n" << out_text_ << "\nstderr so far:\n" << err_text_;
    return false;
  }
  for (auto [index, fd, text] : {std::tuple{0, &out_, &out_text_}, std::tuple{1, &err_, &err_text_}}) {
    if (fds[index].revents == 0) continue;
    char buffer[4096];
    const ssize_t n = read(*fd, buffer, sizeof buffer);
    if (n > 0) {
      text->append(buffer, size_t(n));
    } else {  // a terminal whose program has gone gives EIO
      close(*fd);
      *fd = -1;
    }
  }
  return out_ >= 0 || err_ >= 0;
}

std::string Process::Expect(const std::string& text) {
  for (;;) {
    const size_t at = out_text_.find(text, seen_);
    if (at != std::string::npos) {
      const std::string result = out_text_.substr(seen_, at + text.size() - seen_);
      seen_ = at + text.size();
      return result;
    }
    if (!ReadSome()) {
      ADD_FAILURE() << "'" << text << "' did not come; what came:\n" << out_text_.substr(seen_);
      return "";
    }
  }
}

Output Process::Wait() {
  while (out_ >= 0 || err_ >= 0) {
    if (!ReadSome()) break;
  }
  if (out_ >= 0 || err_ >= 0) Signal(SIGKILL);  // the failure is noted; the rest of the tests should still run
  Output output;
  int status = 0;
  waitpid(std::exchange(pid_, -1), &status, 0);
  if (WIFEXITED(status)) output.code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) output.signal = WTERMSIG(status);
  output.out = std::move(out_text_);
  output.err = std::move(err_text_);
  return output;
}

Output RunSluice(const std::vector<std::string>& arguments, const std::string& input,
                 const Process::Environment& environment) {
  return Process(arguments, input, environment).Wait();
}

}  // namespace sluice::cli
