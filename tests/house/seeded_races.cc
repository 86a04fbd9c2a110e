// Breaks a promise about threads on purpose, so that a test can see that ThreadSanitizer still reports it under
// tests/tsan.supp: a suppression that swallowed races of ours would be found here.
//
// usage: seeded_races pool|scheduler|reactor
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <atomic>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>

#include "engine/base/thread_pool.h"
#include "engine/scheduler/scheduler.h"
#include "server/calls/calls.h"
#include "server/calls/front_desk.h"
#include "server/stream_reactor.h"
#include "sluice/v1/generation.grpc.pb.h"

namespace sluice {
namespace {

// "One at a time": two threads run regions on one pool.
void RacePool() {
  ThreadPool pool(2);
  const auto run = [&pool] {
    for (int i = 0; i < 200; ++i) pool.ParallelFor(8, [](uint32_t, int) {});
  };
  std::thread other(run);
  run();
  other.join();
}

// "Owned by the engine thread": two threads add sequences.
void RaceScheduler() {
  EngineOptions options;
  options.max_model_len = 64;
  options.vocab_size = 100;
  options.num_blocks = 64;
  Scheduler scheduler(options);
  const auto add = [&scheduler](SequenceId id) {
    Request request;
    request.prompt_tokens = {1, 2, 3};
    scheduler.Add(id, id, std::move(request), 0);
  };
  std::thread other([&] { add(2); });
  add(1);
  other.join();
}

class Service final
    : public v1::GenerationService::WithRawCallbackMethod_StreamComplete<v1::GenerationService::Service> {
 public:
  Service(FrontDesk* desk, Calls* calls) : desk_(desk), calls_(calls) {}

  grpc::ServerWriteReactor<grpc::ByteBuffer>* StreamComplete(grpc::CallbackServerContext* context,
                                                             const grpc::ByteBuffer*) override {
    auto reactor = StreamReactor::Create(context, desk_, calls_);
    reactor->Open("1", "1");
    AnswerEvent event;
    event.mutable_started();
    reactor->Send(std::move(event));
    StreamReactor* const known = reactor.get();
    std::atomic_store(&reactor_, std::move(reactor));
    return known;
  }
  std::shared_ptr<StreamReactor> reactor() const { return std::atomic_load(&reactor_); }

 private:
  FrontDesk* const desk_;
  Calls* const calls_;
  std::shared_ptr<StreamReactor> reactor_;
};

// "Before gRPC gets to know the reactor": its ids change while gRPC's threads call it.
void RaceReactor() {
  FrontDesk desk(ServerOptions{}, MetricsOptions{}, Clock::Real());
  Calls calls(&desk);
  Service service(&desk, &calls);
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  const auto stub = v1::GenerationService::NewStub(
      grpc::CreateChannel("127.0.0.1:" + std::to_string(port), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  const auto stream = stub->StreamComplete(&context, v1::StreamCompleteRequest());
  v1::StreamCompleteResponse event;
  stream->Read(&event);
  std::thread leaving([&context] { context.TryCancel(); });  // whereupon OnCancel reads the ids
  for (int i = 0; i < 2000; ++i) {
    service.reactor()->Open("1", std::string(100, '2'));
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  leaving.join();
  stream->Finish();
  server->Shutdown();
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  const std::string what = argc == 2 ? argv[1] : "";
  if (what == "pool") {
    sluice::RacePool();
  } else if (what == "scheduler") {
    sluice::RaceScheduler();
  } else if (what == "reactor") {
    sluice::RaceReactor();
  } else {
    std::fprintf(stderr, "usage: seeded_races pool|scheduler|reactor\n");
    return 2;
  }
  return 0;
}
