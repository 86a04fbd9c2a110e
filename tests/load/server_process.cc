#include "tests/load/server_process.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

[[noreturn]] void Fail(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  std::abort();
}

std::string ModelPath() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const std::string base =
      cache != nullptr && *cache != '\0' ? cache : absl::StrCat(home == nullptr ? "" : home, "/.cache");
  return absl::StrCat(base, "/sluice/SmolLM2-135M-Instruct.Q4_1.gguf");
}

std::string ValueOf(const std::string& line, const std::string& key) {
  const size_t at = line.find(key + "=");
  if (at == std::string::npos) Fail("no " + key + " in: " + line);
  const size_t from = at + key.size() + 1;
  return line.substr(from, line.find_first_of(" \n", from) - from);
}

// The line that the server prints when it is ready.
std::string ReadListening(int fd) {
  std::string text;
  char c;
  while (read(fd, &c, 1) == 1) {
    text.push_back(c);
    if (c != '\n') continue;
    if (text.rfind("listening ", 0) == 0) return text;
    text.clear();
  }
  Fail("the server ended before it was ready");
}

}  // namespace

std::unique_ptr<ServerProcess> ServerProcess::Start(const std::string& binary, const std::vector<std::string>& flags) {
  const std::string model = ModelPath();
  if (access(model.c_str(), R_OK) != 0) return nullptr;
  std::vector<std::string> arguments = {binary, "--model",     model, "--host",       "127.0.0.1", "--grpc-port",
                                        "0",    "--http-port", "0",   "--admin-port", "0"};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  std::vector<char*> argv;
  for (auto& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);

  int out[2];
  if (pipe(out) != 0) Fail("pipe failed");
  std::unique_ptr<ServerProcess> server(new ServerProcess);
  server->pid_ = fork();
  if (server->pid_ == 0) {
    dup2(out[1], STDOUT_FILENO);
    close(out[0]);
    close(out[1]);
    execv(argv[0], argv.data());
    _exit(127);
  }
  close(out[1]);
  const std::string line = ReadListening(out[0]);
  close(out[0]);
  server->grpc_ = ValueOf(line, "grpc");
  server->http_ = ValueOf(line, "http");
  server->admin_ = ValueOf(line, "admin");
  return server;
}

ServerProcess::~ServerProcess() {
  kill(pid_, SIGTERM);
  for (int i = 0; i < 6000; ++i) {
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) == pid_) {
      if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        Fail(absl::StrCat("the server ended with wait status ", status));
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  kill(pid_, SIGKILL);
  Fail("the server did not end within 60 s of SIGTERM");
}

long ServerProcess::ResidentKib() const {
  std::ifstream status(absl::StrCat("/proc/", pid_, "/status"));
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmRSS:", 0) == 0) return std::atol(line.c_str() + 6);
  }
  Fail("the server has no VmRSS");
}

}  // namespace sluice
