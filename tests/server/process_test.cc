// What needs processes of its own: signals to a server, and clients that are killed or frozen. This program plays all
// the parts; its first argument names one.
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>
#include <thread>

#include "server/lifecycle.h"
#include "tests/server/server_fixture.h"

namespace sluice {
namespace {

using namespace std::chrono_literals;

std::string g_program;  // path of this program

// A child that plays `part` and says a line when it is ready.
class Child {
 public:
  explicit Child(const std::vector<std::string>& part) {
    std::vector<char*> argv = {g_program.data()};
    std::vector<std::string> arguments = part;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    pid_ = fork();
    if (pid_ == 0) {
      dup2(ends[1], STDOUT_FILENO);
      close(ends[0]);
      execv(g_program.c_str(), argv.data());
      _exit(99);
    }
    close(ends[1]);
    out_ = ends[0];
  }
  ~Child() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      ExitCode();
    }
    close(out_);
  }

  std::string ReadLine() {
    std::string line;
    char c = 0;
    while (read(out_, &c, 1) == 1 && c != '\n') line += c;
    return line;
  }
  void Signal(int signal) { kill(pid_, signal); }
  int ExitCode() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  pid_t pid_ = 0;
  int out_ = -1;
};

void Say(const std::string& line) {
  const std::string text = line + "\n";
  if (write(STDOUT_FILENO, text.data(), text.size()) < 0) _exit(98);
}

// serve DRAIN_DELAY_MS DRAIN_TIMEOUT_MS STEP_MS WATCHDOG_EXIT_MS: a server on fakes until a signal. SIGUSR1 breaks its device; after SIGUSR2
// no step ends any more, which its watchdog notices after 100 ms.
int Serve(char** arguments) {
  sigset_t breaking;
  sigemptyset(&breaking);
  sigaddset(&breaking, SIGUSR1);
  sigaddset(&breaking, SIGUSR2);
  pthread_sigmask(SIG_BLOCK, &breaking, nullptr);  // of all threads to come
  SignalWatcher signals;
  LifecycleOptions lifecycle;
  lifecycle.drain_delay = std::chrono::milliseconds(std::stoi(arguments[0]));
  lifecycle.drain_timeout = std::chrono::milliseconds(std::stoi(arguments[1]));
  lifecycle.watchdog_timeout = 100ms;
  lifecycle.watchdog_exit = std::chrono::milliseconds(std::stoi(arguments[3]));
  auto model = std::make_shared<FakeModel>();
  model->SetStepTime(std::chrono::milliseconds(std::stoi(arguments[2])));
  ServerOptions options = TestOptions();
  options.lifecycle = lifecycle;
  auto server = Server::Start(options);
  if (!server.ok() || !(*server)->Serve(FakeHost(model)).ok()) return 97;
  std::thread([breaking, model] {
    int signal = 0;
    sigwait(&breaking, &signal);
    if (signal == SIGUSR1) return model->FailSteps();
    model->Hold();
    std::this_thread::sleep_for(1h);
  }).detach();
  signals.Arm();
  Say((*server)->grpc_address());
  return RunUntilSignal(server->get(), lifecycle, signals);
}

// wait: has blocked the signals and is still loading.
int Wait() {
  SignalWatcher signals;
  Say("loading");
  std::this_thread::sleep_for(1h);
  return 0;
}

// stream ADDRESS: a client that reads an endless stream.
int Stream(char** arguments) {
  const auto stub =
      v1::GenerationService::NewStub(grpc::CreateChannel(arguments[0], grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  v1::StreamCompleteRequest request = StreamPrompt("abc");
  request.mutable_options()->set_ignore_eos(true);
  const auto reader = stub->StreamComplete(&context, request);
  v1::StreamCompleteResponse event;
  if (reader->Read(&event)) Say("reading");
  while (reader->Read(&event)) {
  }
  return 0;
}

class SignalTest : public ServerTest {
 protected:
  // The call ends soon even if a server takes it whose engine hangs.
  bool RefusesCalls() const {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + 500ms);
    v1::CompleteResponse response;
    return generation()->Complete(&context, Prompt("abc"), &response).error_code() == grpc::UNAVAILABLE;
  }

  // A running server; the clients of the fixture talk to it.
  std::unique_ptr<Child> Launch(std::chrono::milliseconds drain_delay, std::chrono::milliseconds drain_timeout,
                                std::chrono::milliseconds step, std::chrono::milliseconds watchdog_exit = 0ms) {
    auto child = std::make_unique<Child>(std::vector<std::string>{"serve", std::to_string(drain_delay.count()),
                                                                  std::to_string(drain_timeout.count()),
                                                                  std::to_string(step.count()),
                                                                  std::to_string(watchdog_exit.count())});
    channel_ = NewChannel(child->ReadLine());
    return child;
  }

  // Begins a drain under a stream, then sends `signal`: how the stream ends.
  grpc::Status DrainAndSignal(Child* server, int signal) {
    v1::StreamCompleteRequest request = StreamPrompt("abc");
    request.mutable_options()->set_ignore_eos(true);
    grpc::ClientContext context;
    const auto stub = generation();
    const auto reader = stub->StreamComplete(&context, request);
    v1::StreamCompleteResponse event;
    EXPECT_TRUE(reader->Read(&event));
    server->Signal(SIGTERM);
    WaitFor("new calls to be refused", [&] { return RefusesCalls(); });
    server->Signal(signal);
    while (reader->Read(&event)) {
    }
    return reader->Finish();
  }
};

TEST_F(SignalTest, SigtermWithNothingToDoEndsWithZero) {
  const auto server = Launch(0ms, 10s, 0ms);
  server->Signal(SIGTERM);
  EXPECT_EQ(server->ExitCode(), 0);
}

TEST_F(SignalTest, SigtermLetsRunningStreamsFinish) {
  const auto server = Launch(0ms, 60s, 5ms);
  std::vector<std::thread> clients;
  std::atomic<int> running = 0, succeeded = 0;
  for (int i = 0; i < 8; ++i) {
    clients.emplace_back([&] {
      v1::StreamCompleteRequest request = StreamPrompt("abc", 100);
      request.mutable_options()->set_ignore_eos(true);
      grpc::ClientContext context;
      const auto stub = generation();
      const auto reader = stub->StreamComplete(&context, request);
      v1::StreamCompleteResponse event;
      if (reader->Read(&event)) ++running;
      uint32_t tokens = 0;
      while (reader->Read(&event)) tokens = event.event().completed().usage().completion_tokens();
      if (reader->Finish().ok() && tokens == 100) ++succeeded;
    });
  }
  WaitFor("all streams to run", [&] { return running == 8; });
  server->Signal(SIGTERM);
  WaitFor("new calls to be refused", [&] { return RefusesCalls(); });
  EXPECT_EQ(server->ExitCode(), 0);
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(succeeded, 8);
}

TEST_F(SignalTest, DuringTheDrainDelayCallsAreStillTaken) {
  const auto server = Launch(1h, 10s, 0ms);
  server->Signal(SIGTERM);
  WaitFor("readiness to go", [&] {
    grpc::ClientContext context;
    grpc::health::v1::HealthCheckResponse response;
    return health()->Check(&context, {}, &response).ok() &&
           response.status() == grpc::health::v1::HealthCheckResponse::NOT_SERVING;
  });
  EXPECT_TRUE(Complete(Prompt("abc")).ok());
}

TEST_F(SignalTest, ASecondSignalSkipsTheWaits) {
  const auto server = Launch(0ms, 1h, 20ms);
  EXPECT_EQ(DrainAndSignal(server.get(), SIGINT).error_code(), grpc::UNAVAILABLE);
  EXPECT_EQ(server->ExitCode(), 128 + SIGINT);
}

TEST_F(SignalTest, AnEngineThatFailsWhileDrainingEndsWithOne) {
  const auto server = Launch(0ms, 1h, 20ms);
  EXPECT_EQ(DrainAndSignal(server.get(), SIGUSR1).error_code(), grpc::INTERNAL);
  EXPECT_EQ(server->ExitCode(), 1);
}

// A stream of a server that then hangs; `end` may do something about it. How the stream ends.
grpc::Status HangUnderAStream(v1::GenerationService::Stub* stub, Child* server, const std::function<void()>& end) {
  v1::StreamCompleteRequest request = StreamPrompt("abc");
  request.mutable_options()->set_ignore_eos(true);
  grpc::ClientContext context;
  const auto reader = stub->StreamComplete(&context, request);
  v1::StreamCompleteResponse event;
  EXPECT_TRUE(reader->Read(&event));
  server->Signal(SIGUSR2);
  end();
  bool completed = false;
  while (reader->Read(&event)) completed = event.event().has_completed();
  EXPECT_TRUE(completed) << "usage comes before the error";
  return reader->Finish();
}

TEST_F(SignalTest, AHungEngineEndsItsCallsAndTheProcess) {
  const auto server = Launch(0ms, 1h, 5ms, 200ms);
  const grpc::Status status = HangUnderAStream(generation().get(), server.get(), [] {});
  EXPECT_EQ(status.error_code(), grpc::INTERNAL);
  EXPECT_EQ(DetailsOf(status).info.reason(), "DEVICE_FAULT");
  EXPECT_EQ(server->ExitCode(), 1);
}

TEST_F(SignalTest, WithoutWatchdogExitAHungEngineStays) {
  const auto server = Launch(0ms, 1h, 5ms, 0ms);
  grpc::ClientContext context;
  v1::StreamCompleteRequest request = StreamPrompt("abc");
  request.mutable_options()->set_ignore_eos(true);
  const auto stub = generation();
  const auto reader = stub->StreamComplete(&context, request);
  v1::StreamCompleteResponse event;
  ASSERT_TRUE(reader->Read(&event));
  server->Signal(SIGUSR2);
  grpc::health::v1::HealthCheckRequest liveness;
  liveness.set_service("liveness");
  grpc::health::v1::HealthCheckResponse response;
  const auto check = [&] {
    grpc::ClientContext probe;
    return health()->Check(&probe, liveness, &response).ok();
  };
  WaitFor("liveness to go", [&] { return check() && response.status() != grpc::health::v1::HealthCheckResponse::SERVING; });
  std::this_thread::sleep_for(500ms);
  EXPECT_TRUE(check());
  context.TryCancel();
}

TEST_F(SignalTest, SigtermEndsAProcessWhoseEngineHangs) {
  const auto server = Launch(0ms, 100ms, 5ms);
  const grpc::Status status = HangUnderAStream(generation().get(), server.get(), [&] { server->Signal(SIGTERM); });
  EXPECT_EQ(status.error_code(), grpc::UNAVAILABLE);
  EXPECT_EQ(DetailsOf(status).info.reason(), "DRAINING");
  EXPECT_EQ(server->ExitCode(), 1);
}

TEST_F(SignalTest, ASecondSignalEndsAProcessWhoseEngineHangs) {
  const auto server = Launch(0ms, 1h, 5ms);
  HangUnderAStream(generation().get(), server.get(), [&] {
    server->Signal(SIGTERM);
    WaitFor("new calls to be refused", [&] { return RefusesCalls(); });
    server->Signal(SIGINT);
  });
  const int code = server->ExitCode();
  EXPECT_TRUE(code == 1 || code == 128 + SIGINT) << code;
}

TEST(LoadingSignalTest, ASignalWhileLoadingEndsTheProcess) {
  Child child({"wait"});
  EXPECT_EQ(child.ReadLine(), "loading");
  child.Signal(SIGTERM);
  EXPECT_EQ(child.ExitCode(), 128 + SIGTERM);
}

class LostClientTest : public ServerTest {};

TEST_F(LostClientTest, AKilledClientFreesItsBlocks) {
  Start();
  model_->SetStepTime(5ms);
  Child client({"stream", server_->grpc_address()});
  ASSERT_EQ(client.ReadLine(), "reading");
  client.Signal(SIGKILL);
  WaitUntilIdle();
  WaitFor("the call to be counted", [&] { return Metric("sluice_requests_total", "\"cancelled\"") == 1; });
}

TEST_F(LostClientTest, AFrozenClientIsCutByKeepalive) {
  ServerOptions options = TestOptions();
  options.network.keepalive_time = 300ms;
  options.network.keepalive_timeout = 3s;  // time enough for a client that is awake on a busy machine
  Start(options, [](ModelHost* host) {
    host->engine.max_model_len = 100000;
    host->engine.num_blocks = 10000;
  });
  model_->SetStepTime(2ms);
  Child client({"stream", server_->grpc_address()});
  ASSERT_EQ(client.ReadLine(), "reading");
  client.Signal(SIGSTOP);
  WaitUntilIdle();
  // A client that is awake stays.
  EXPECT_TRUE(Complete(Prompt("abc")).ok());
}

}  // namespace

int Play(int argc, char** argv) {
  const std::string part = argc > 1 ? argv[1] : "";
  if (part == "serve" && argc == 6) return Serve(argv + 2);
  if (part == "wait") return Wait();
  if (part == "stream" && argc == 3) return Stream(argv + 2);
  if (!part.empty() && part[0] != '-') return 96;  // not the tests, which would start this part again
  g_program = argv[0];
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

}  // namespace sluice

int main(int argc, char** argv) { return sluice::Play(argc, argv); }
