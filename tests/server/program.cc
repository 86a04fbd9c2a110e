#include "tests/server/program.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <thread>

namespace sluice {

using namespace std::chrono_literals;

Program::Program(const std::vector<std::string>& flags) {
  std::vector<std::string> arguments = {SLUICE_SERVER_BINARY, "--model",
                                        SLUICE_SOURCE_DIR "/tests/goldens/models/llama-mha/model.gguf", "--host",
                                        "127.0.0.1", "--grpc-port", "0", "--http-port", "0", "--admin-port", "0",
                                        "--threads", "1", "--kv-memory", "4MiB"};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  int out[2], log[2];
  EXPECT_EQ(pipe2(out, O_CLOEXEC), 0);
  EXPECT_EQ(pipe2(log, O_CLOEXEC), 0);
  pid_ = fork();
  if (pid_ == 0) {
    dup2(out[1], STDOUT_FILENO);
    dup2(log[1], STDERR_FILENO);
    execv(argv[0], argv.data());
    _exit(99);
  }
  close(out[1]);
  close(log[1]);
  log_ = log[0];
  std::string line;
  for (char c = 0; read(out[0], &c, 1) == 1 && c != '\n';) line.push_back(c);
  close(out[0]);
  const size_t at = line.find("grpc=") + 5;
  address_ = line.substr(at, line.find(' ', at) - at);
}

Program::~Program() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  close(log_);
}

std::string Program::ReadLog() const {
  std::string text;
  char piece[4096];
  pollfd ready{.fd = log_, .events = POLLIN, .revents = 0};
  while (poll(&ready, 1, 500) == 1) {
    const ssize_t size = read(log_, piece, sizeof piece);
    if (size <= 0) break;
    text.append(piece, size_t(size));
  }
  return text;
}

int64_t Program::PeakBytes() const {
  std::ifstream status("/proc/" + std::to_string(pid_) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmHWM:", 0) == 0) return std::stoll(line.substr(6)) * 1024;
  }
  ADD_FAILURE() << "the program is not there";
  return 0;
}

int Program::Terminate(std::chrono::seconds patience) {
  kill(pid_, SIGTERM);
  for (auto waited = 0ms; waited < patience; waited += 10ms) {
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) == pid_) {
      pid_ = -1;
      return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    std::this_thread::sleep_for(10ms);
  }
  return -1;
}

}  // namespace sluice
