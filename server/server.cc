#include "server/server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "engine/base/log.h"
#include "engine/base/status_macros.h"
#include "server/admin_service.h"
#include "server/calls/calls.h"
#include "server/calls/front_desk.h"
#include "server/calls/served_model.h"
#include "server/calls/status.h"
#include "server/generation_service.h"
#include "server/health_service.h"
#include "server/http_server.h"
#include "server/model_service.h"
#include "server/net/acceptor.h"
#include "server/net/grpc_front.h"
#include "server/net/listener.h"
#include "server/tokenizer_service.h"

namespace sluice {
namespace {

// For streams that are not generations, and so that calls beyond the queue are refused rather than held back by HTTP/2.
constexpr int kSpareStreams = 1024;
// Clients may ping this often without being cut.
constexpr int kMinClientPingMs = 10000;
// For the last messages to be written, once all calls have ended or been cut.
constexpr std::chrono::seconds kFlushTime{1};
// gRPC refuses a message of so many times the largest request, in its own words.
constexpr int64_t kMaxMessages = 4;

// Descriptors for all but the connections of the public gRPC port: files, threads' epolls, HTTP, admin.
constexpr int kOtherDescriptors = 512;
constexpr int kMaxAdminConnections = 64;

// A gRPC server and the front in front of it.
struct GrpcServer {
  std::unique_ptr<grpc::Server> server;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor;
  std::unique_ptr<GrpcFront> front;
};

// Through the front alone: gRPC itself listens nowhere.
absl::StatusOr<GrpcServer> StartGrpc(Listener listener, const GrpcFrontOptions& front, const ServerOptions& options,
                                     const std::vector<grpc::Service*>& services, GrpcFront::OnAble on_able) {
  using ConnectionType = grpc::ServerBuilder::experimental_type::ExternalConnectionType;
  const auto milliseconds = [](std::chrono::milliseconds time) { return int(time.count()); };
  grpc::ServerBuilder builder;
  // Services take bytes and judge them themselves (request_message.h). gRPC's own limit is for reflection.
  builder.SetMaxReceiveMessageSize(int(std::min<int64_t>(kMaxMessages * options.limits.max_request_bytes, INT32_MAX)));
  builder.AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
  builder.SetResourceQuota(grpc::ResourceQuota("sluice").Resize(size_t(options.network.grpc_memory_bytes)));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS,
                             options.limits.max_num_seqs + options.limits.max_queued_requests + kSpareStreams);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, milliseconds(options.network.keepalive_time));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, milliseconds(options.network.keepalive_timeout));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_SENT_PING_INTERVAL_WITHOUT_DATA_MS,
                             milliseconds(options.network.keepalive_time));
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kMinClientPingMs);
  GrpcServer started;
  started.acceptor = builder.experimental().AddExternalConnectionAcceptor(ConnectionType::FROM_FD,
                                                                          grpc::InsecureServerCredentials());
  for (grpc::Service* service : services) builder.RegisterService(service);
  started.server = builder.BuildAndStart();
  if (started.server == nullptr) return absl::InternalError(absl::StrCat(front.name, ": gRPC does not start"));
  const auto hand_over = [acceptor = started.acceptor.get()](UniqueFd fd) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.fd = fd.release();
    acceptor->HandleNewConnection(&connection);
  };
  SLUICE_ASSIGN_OR_RETURN(started.front,
                          GrpcFront::Start(std::move(listener), front, hand_over, std::move(on_able)));
  return started;
}

// As many connections as were asked for, or as the limit of open files allows.
int AffordableConnections(int asked) {
  const int affordable = std::max(8, (DescriptorLimit() - kOtherDescriptors) / kDescriptorsPerGrpcConnection);
  if (affordable >= asked) return asked;
  const int needed = asked * kDescriptorsPerGrpcConnection + kOtherDescriptors;
  LogWarning(absl::StrCat("--max-connections: ", asked, " need ", needed, " open files, the limit is ",
                          DescriptorLimit(), ": ", affordable, " are taken"));
  return affordable;
}

HttpResponse HealthAnswer(bool good, const char* yes, const char* no) {
  return {.status = good ? 200 : 503, .body = absl::StrCat("{\"status\":\"", good ? yes : no, "\"}\n")};
}

}  // namespace

class Server::Impl {
 public:
  Impl(const ServerOptions& options, const Clock& clock)
      : desk_(options,
              {.models = {options.model.names.front()}, .version = Version(), .vllm_aliases = options.vllm_metrics},
              clock),
        generation_(&desk_, &calls_),
        tokenizer_(&desk_),
        model_service_(&desk_),
        admin_(&desk_, [this] { BeginDrain(); }),
        health_(&desk_.health, desk_.options.limits),
        admin_health_(&desk_.health, desk_.options.limits) {
    desk_.metrics.SetSource([this] { return Snapshot(); });
  }
  ~Impl() { Stop(); }

  absl::Status Start() {
    const NetworkOptions& network = desk_.options.network;
    SLUICE_ASSIGN_OR_RETURN(Listener http, Listener::Open("--http-port", network.host, network.http_port));
    SLUICE_ASSIGN_OR_RETURN(Listener grpc, Listener::Open("--grpc-port", network.host, network.grpc_port));
    SLUICE_ASSIGN_OR_RETURN(Listener admin, Listener::Open("--admin-port", kLoopbackAddress, network.admin_port));
    HttpOptions http_options;
    http_options.trusted_proxies = network.trusted_proxies;
    http_ = HttpServer::Start(std::move(http), http_options, HttpHandlers());
    if (network.reflection) {
      static const bool once = (grpc::reflection::InitProtoReflectionServerBuilderPlugin(), true);
      (void)once;
    }
    GrpcFrontOptions front;
    front.name = "grpc";
    front.max_connections = AffordableConnections(network.max_connections);
    front.max_connections_per_peer = network.max_connections_per_peer;
    front.trusted_proxies = network.trusted_proxies;
    front.receive_timeout = network.receive_timeout;
    SLUICE_ASSIGN_OR_RETURN(public_, StartGrpc(std::move(grpc), front, desk_.options,
                                               {&generation_, &tokenizer_, &model_service_, &health_},
                                               [this](bool able) { desk_.health.SetConnectable(able); }));
    front.name = "admin";
    front.max_connections = front.max_connections_per_peer = kMaxAdminConnections;
    SLUICE_ASSIGN_OR_RETURN(private_,
                            StartGrpc(std::move(admin), front, desk_.options, {&admin_, &admin_health_}, [](bool) {}));
    started_ = true;
    return absl::OkStatus();
  }

  absl::Status Serve(ModelHost host) {
    SLUICE_ASSIGN_OR_RETURN(
        model_, ServedModel::Create(std::move(host), desk_.options.model.names, desk_.options.limits.max_logprobs,
                                    &calls_, &desk_.metrics, desk_.clock));
    desk_.model.store(model_.get());
    desk_.health.Advance(HealthState::Phase::kReady);
    return absl::OkStatus();
  }

  std::string grpc_address() const { return public_.front->address().ToString(); }
  std::string http_address() const { return http_->address().ToString(); }
  std::string admin_address() const { return private_.front->address().ToString(); }

  void BeginLeaving() { desk_.health.Advance(HealthState::Phase::kLeaving); }

  void BeginDrain() {
    desk_.health.Advance(HealthState::Phase::kDraining);
    if (ServedModel* model = desk_.model.load(); model != nullptr) model->engine().Drain();
  }

  bool WaitForCalls(std::chrono::milliseconds timeout, const std::function<bool()>& hurry) {
    using Clock = std::chrono::steady_clock;
    if (calls_.WaitUntilEmpty(Clock::now() + timeout, hurry)) return true;
    for (const std::shared_ptr<Call>& call : calls_.All()) {
      call->Stop(FinishReason::kCancelled, CallError(absl::StatusCode::kUnavailable, kReasonDraining,
                                                     "the server shut down before the call's end"));
    }
    // Each ends within one step, and its last words are taken by a client that reads; one that hangs is ended with its
    // connection.
    const auto never = [] { return false; };
    if (calls_.WaitUntilEmpty(Clock::now() + 2 * kFlushTime, never)) return false;
    if (ServedModel* model = desk_.model.load(); model != nullptr) {
      model->AbandonCalls(CallError(absl::StatusCode::kUnavailable, kReasonDraining, "the server shut down before the call's end"));
      calls_.WaitUntilEmpty(Clock::now() + 2 * kFlushTime, never);
    }
    return false;
  }

  void FailCalls(const absl::Status& fault) {
    BeginDrain();
    desk_.health.Advance(HealthState::Phase::kFailed);
    const auto wait = [&] {
      return calls_.WaitUntilEmpty(std::chrono::steady_clock::now() + kFlushTime, [] { return false; });
    };
    if (wait()) return;  // an engine that has given up ends its calls itself, with all that it generated
    if (ServedModel* model = desk_.model.load(); model != nullptr) model->AbandonCalls(fault);
    wait();
  }

  std::string DescribeWorkers() const {
    const ServedModel* model = desk_.model.load();
    return model == nullptr ? "" : model->engine().DescribeWorkers();
  }

  void Stop() {
    desk_.health.Advance(HealthState::Phase::kStopped);
    // Streams whose clients do not take their last messages are cut after the grace, and so are all connections: gRPC
    // itself may wait long for what a client still sends.
    const auto deadline = std::chrono::system_clock::now() + kFlushTime;
    for (GrpcServer* grpc : {&public_, &private_}) {
      if (grpc->front != nullptr) grpc->front->StopIn(kFlushTime);
    }
    for (GrpcServer* grpc : {&public_, &private_}) {
      if (grpc->server != nullptr) grpc->server->Shutdown(deadline);
      if (grpc->front != nullptr) grpc->front->Stop();
    }
    desk_.ingress.Stop();
    desk_.tokenizer_ingress.Stop();
    if (model_ != nullptr) model_->Stop();
    public_.server.reset();
    private_.server.reset();
    if (http_ != nullptr) http_->Stop();
  }

  absl::Status CheckEngine() {
    ServedModel* model = desk_.model.load();
    if (model == nullptr) return absl::OkStatus();
    const EngineStats stats = model->engine().Stats();
    if (!stats.fault.ok()) {
      desk_.health.Advance(HealthState::Phase::kFailed);
      return stats.fault;
    }
    const LifecycleOptions& lifecycle = desk_.options.lifecycle;
    if (lifecycle.watchdog_timeout.count() == 0) return absl::OkStatus();
    const std::chrono::nanoseconds age(stats.busy ? desk_.clock.NowNs() - stats.last_progress_ns : 0);
    const bool stalled = age > lifecycle.watchdog_timeout;
    const std::string complaint =
        absl::StrCat("the engine has work and has completed no step for ", age / std::chrono::seconds(1), " s");
    if (stalled && desk_.health.Live()) LogError(absl::StrCat(complaint, ": ", model->engine().DescribeWorkers()));
    desk_.health.SetStalled(stalled);
    if (!stalled || lifecycle.watchdog_exit.count() == 0) return absl::OkStatus();
    if (age <= lifecycle.watchdog_timeout + lifecycle.watchdog_exit) return absl::OkStatus();
    return CallError(absl::StatusCode::kInternal, kReasonDeviceFault, complaint);
  }

 private:
  std::map<std::string, HttpServer::Handler> HttpHandlers() {
    const auto ready = [this] { return HealthAnswer(desk_.health.Ready(), "ready", "not ready"); };
    const auto live = [this] { return HealthAnswer(desk_.health.Live(), "alive", "stalled"); };
    return {
        {"/metrics",
         [this]() -> HttpResponse {
           return {.content_type = "text/plain; version=0.0.4; charset=utf-8", .body = desk_.metrics.Serialize()};
         }},
        {"/health", ready},
        {"/health/ready", ready},
        {"/health/live", live},
        {"/version", []() -> HttpResponse { return {.body = absl::StrCat("{\"version\":\"", Version(), "\"}\n")}; }}};
  }

  ServerSnapshot Snapshot() const {
    ServerSnapshot snapshot;
    snapshot.models = {SnapshotOfModel()};
    snapshot.log_lines_dropped = DroppedLogLines();
    snapshot.output_held_bytes = desk_.output.bytes();
    snapshot.output_cut = desk_.output.num_cut();
    if (started_) snapshot.listeners = {public_.front->Stats(), http_->Stats(), private_.front->Stats()};
    return snapshot;
  }

  ModelSnapshot SnapshotOfModel() const {
    ModelSnapshot snapshot;
    snapshot.model = desk_.options.model.names.front();
    snapshot.healthy = desk_.health.Live();
    snapshot.draining = desk_.health.phase() >= HealthState::Phase::kDraining;
    const ServedModel* model = desk_.model.load();
    if (model == nullptr) return snapshot;
    const ModelHost& host = model->host();
    snapshot.engine = model->engine().Stats();
    snapshot.block_size = host.engine.block_size;
    snapshot.load_seconds = host.load_seconds;
    snapshot.weight_bytes = host.weight_bytes;
    snapshot.kv_cache_bytes = host.kv_bytes;
    snapshot.architecture = host.architecture;
    snapshot.weight_type = host.weight_type;
    snapshot.activations = host.activations;
    snapshot.kv_type = host.kv_type;
    snapshot.device = host.device;
    return snapshot;
  }

  FrontDesk desk_;
  Calls calls_{&desk_};
  std::unique_ptr<ServedModel> model_;
  GenerationService generation_;
  TokenizerService tokenizer_;
  ModelService model_service_;
  AdminService admin_;
  HealthService health_;
  HealthService admin_health_;
  std::unique_ptr<HttpServer> http_;
  GrpcServer public_;
  GrpcServer private_;
  std::atomic<bool> started_{false};  // all listeners are there
};

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const ServerOptions& options, const Clock& clock) {
  auto impl = std::make_unique<Impl>(options, clock);
  SLUICE_RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() = default;
absl::Status Server::Serve(ModelHost host) { return impl_->Serve(std::move(host)); }
std::string Server::grpc_address() const { return impl_->grpc_address(); }
std::string Server::http_address() const { return impl_->http_address(); }
std::string Server::admin_address() const { return impl_->admin_address(); }
void Server::BeginLeaving() { impl_->BeginLeaving(); }
void Server::BeginDrain() { impl_->BeginDrain(); }
bool Server::WaitForCalls(std::chrono::milliseconds timeout, const std::function<bool()>& hurry) {
  return impl_->WaitForCalls(timeout, hurry);
}
void Server::Stop() { impl_->Stop(); }
absl::Status Server::CheckEngine() { return impl_->CheckEngine(); }
void Server::FailCalls(const absl::Status& fault) { impl_->FailCalls(fault); }
std::string Server::DescribeWorkers() const { return impl_->DescribeWorkers(); }

}  // namespace sluice
