// The log of the program itself: what clients send does not forge it, nor flood it, and nobody has to read it.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "sluice/v1/generation.grpc.pb.h"

namespace sluice {
namespace {

using namespace std::chrono_literals;

// sluice-server with a tiny model; its stderr is a pipe that only ReadLog reads.
class Program {
 public:
  explicit Program(std::vector<std::string> flags) {
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
  ~Program() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    close(log_);
  }

  const std::string& address() const { return address_; }
  int port() const { return std::stoi(address_.substr(address_.rfind(':') + 1)); }
  // What has come, until nothing comes for a while.
  std::string ReadLog() const {
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
  // The exit code after SIGTERM; -1 if the program does not end in time.
  int Terminate(std::chrono::seconds patience) {
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

 private:
  pid_t pid_ = -1;
  int log_ = -1;
  std::string address_;
};

// A header as HPACK writes it without its table: "literal header field without indexing".
std::string Header(const std::string& name, const std::string& value) {
  const auto text = [](const std::string& text) {
    std::string out;
    if (text.size() < 127) {
      out.push_back(char(text.size()));
    } else {
      out.push_back(127);
      size_t rest = text.size() - 127;
      for (; rest >= 128; rest >>= 7) out.push_back(char(0x80 | (rest & 127)));
      out.push_back(char(rest));
    }
    return out + text;
  };
  return std::string(1, '\0') + text(name) + text(value);
}

std::string Frame(int type, int flags, int stream, const std::string& payload) {
  std::string out;
  for (int shift : {16, 8, 0}) out.push_back(char(payload.size() >> shift));
  out.push_back(char(type));
  out.push_back(char(flags));
  for (int shift : {24, 16, 8, 0}) out.push_back(char(stream >> shift));
  return out + payload;
}

// Calls with a `te` header that gRPC refuses, and prints.
void SendHeaders(int port, const std::string& te, int count) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(uint16_t(port));
  inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
  ASSERT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  std::string bytes = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + Frame(4, 0, 0, "");
  for (int i = 0; i < count; ++i) {
    bytes += Frame(1, 5, 2 * i + 1,
                   Header(":method", "POST") + Header(":scheme", "http") + Header(":path", "/x") +
                       Header(":authority", "x") + Header("te", te) + Header("content-type", "application/grpc"));
  }
  for (size_t sent = 0; sent < bytes.size();) {
    const ssize_t size = send(fd, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (size <= 0) break;
    sent += size_t(size);
  }
  std::this_thread::sleep_for(300ms);
  close(fd);
}

TEST(ProgramLog, HeadersOfClientsNeitherForgeNorFloodIt) {
  Program program({"--log-level", "debug"});
  program.ReadLog();
  SendHeaders(program.port(), "x\n2026-12-01T00:00:00.000Z INFO a forged line \x1b[31mred", 1);
  const std::string log = program.ReadLog();
  EXPECT_THAT(log, testing::HasSubstr("gRPC ")) << "gRPC says nothing: the test tests nothing";
  EXPECT_THAT(log, testing::Not(testing::HasSubstr("\n2026-12-01T00:00:00.000Z INFO a forged line")));
  EXPECT_EQ(log.find('\x1b'), std::string::npos);
  for (int i = 0; i < 10; ++i) SendHeaders(program.port(), std::string(3000, 'z'), 50);
  EXPECT_LT(program.ReadLog().size(), 64u << 10);
}

TEST(ProgramLog, CallsAreAnsweredAndTheProgramEndsWhileNobodyReadsIt) {
  Program program({"--log-level", "debug"});
  const auto stub = v1::GenerationService::NewStub(
      grpc::CreateChannel(program.address(), grpc::InsecureChannelCredentials()));
  v1::CompleteRequest request;
  request.mutable_prompt_ids()->add_ids(1);
  request.mutable_options()->set_max_tokens(1);
  request.set_user(std::string(128, 'u'));
  for (int i = 0; i < 600; ++i) {  // each a line of some 280 bytes; a pipe holds 64 KiB
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + 20s);
    v1::CompleteResponse response;
    const grpc::Status status = stub->Complete(&context, request, &response);
    ASSERT_TRUE(status.ok()) << i << ": " << status.error_message();
  }
  EXPECT_EQ(program.Terminate(30s), 0);
}

}  // namespace
}  // namespace sluice
