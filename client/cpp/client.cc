#include "client/cpp/client.h"

#include <google/protobuf/util/time_util.h>
#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <mutex>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "sluice/v1/admin.grpc.pb.h"
#include "sluice/v1/generation.grpc.pb.h"
#include "sluice/v1/model.grpc.pb.h"
#include "sluice/v1/tokenizer.grpc.pb.h"

namespace sluice::client {
namespace {

constexpr char kStatusPayload[] = "type.googleapis.com/google.rpc.Status";

constexpr char kRetry[] = R"(,
  "methodConfig": [{
    "name": [{}],
    "retryPolicy": {"maxAttempts": 4, "initialBackoff": "0.1s", "maxBackoff": "2s", "backoffMultiplier": 2,
                    "retryableStatusCodes": ["UNAVAILABLE"]}
  }],
  "retryThrottling": {"maxTokens": 10, "tokenRatio": 0.1})";

std::string ServiceConfig(const ClientOptions& options) {
  return absl::StrCat(R"({"loadBalancingConfig": [{"round_robin": {}}])", options.retry_unavailable ? kRetry : "",
                      options.avoid_unhealthy ? R"(, "healthCheckConfig": {"serviceName": ""})" : "", "}");
}

bool IsLoopback(const std::string& target) {
  for (const char* prefix : {"localhost:", "127.", "[::1]", "ipv4:127.", "ipv6:[::1]"}) {
    if (absl::StartsWith(target, prefix)) return true;
  }
  return false;
}

// Why a connection failed: what gRPC says in the words of its inside, where its meaning is known, plainly.
std::string ConnectionProblem(const std::string& message) {
  const auto says = [&](absl::string_view words) { return absl::StrContains(message, words); };
  if (says("Connection refused")) return "connection refused: no server listens there";
  if (says("Domain name not found") || says("DNS resolution failed")) return "no host of that name is known";
  if (says("http1.x") || says("parsing HTTP/2")) return "what listens there does not speak gRPC";
  if (says("all backends failing") && (says("Socket closed") || says("Connection reset"))) {
    return "the connection was closed at once: what listens there may not speak gRPC";
  }
  return message;
}

absl::Status ToAbsl(const grpc::Status& status, const std::string& target) {
  if (status.ok()) return absl::OkStatus();
  // What a server says about itself carries details; without them it is the library that speaks.
  std::string message = status.error_message();
  if (status.error_details().empty() && status.error_code() == grpc::StatusCode::UNAVAILABLE) {
    message = absl::StrCat(target, ": ", ConnectionProblem(message));
  } else if (status.error_details().empty() && status.error_code() == grpc::StatusCode::UNIMPLEMENTED) {
    message = absl::StrCat(target, ": this port does not offer the service", message.empty() ? "" : ": ", message);
  }
  absl::Status result(static_cast<absl::StatusCode>(status.error_code()), message);
  if (!status.error_details().empty()) result.SetPayload(kStatusPayload, absl::Cord(status.error_details()));
  return result;
}

void Prepare(grpc::ClientContext& context, const CallOptions& options) {
  if (options.timeout) context.set_deadline(std::chrono::system_clock::now() + *options.timeout);
  for (const auto& [key, value] : options.metadata) context.AddMetadata(key, value);
}

// One stream of either kind: both responses hold an event.
template <class Response>
class StreamImpl final : public Stream, public grpc::ClientReadReactor<Response> {
 public:
  StreamImpl(StreamHandler handler, std::string target) : handler_(std::move(handler)), target_(std::move(target)) {}
  ~StreamImpl() override {
    Cancel();
    WaitUntilDone();
  }

  grpc::ClientContext& context() { return context_; }
  void Start() {
    ReadNext();
    Synchronize();
    this->StartCall();
  }

  void Cancel() override { context_.TryCancel(); }

  absl::Status Wait() override {
    WaitUntilDone();
    return status_;
  }

  void OnReadDone(bool ok) override {
    Synchronize();
    if (!ok) {
      unreadable_ = response_.GetReflection()->GetUnknownFields(response_).empty();
      if (unreadable_) Cancel();
      return;
    }
    Tell(response_.event());
    ReadNext();
  }

  void OnDone(const grpc::Status& status) override {
    Synchronize();
    status_ = ToAbsl(status, target_);
    if (unreadable_) status_ = absl::InternalError("the server sent an event that is not valid protobuf");
    if (status_.ok() && !completed_) status_ = absl::DataLossError("the stream ended without its last event");
    if (handler_.on_done) handler_.on_done(status_);
    std::lock_guard<std::mutex> lock(mutex_);
    done_ = true;
    changed_.notify_all();
  }

 private:
  void Tell(const v1::GenerationEvent& event) {
    switch (event.event_case()) {
      case v1::GenerationEvent::kStarted:
        if (handler_.on_started) handler_.on_started(event.started());
        break;
      case v1::GenerationEvent::kDelta:
        if (handler_.on_delta) handler_.on_delta(event.delta());
        break;
      case v1::GenerationEvent::kChoiceFinished:
        if (handler_.on_choice_finished) handler_.on_choice_finished(event.choice_finished());
        break;
      case v1::GenerationEvent::kCompleted:
        completed_ = true;
        if (handler_.on_completed) handler_.on_completed(event.completed());
        break;
      case v1::GenerationEvent::EVENT_NOT_SET:  // an event of a newer server
        break;
    }
  }

  // gRPC tells the end and a message that cannot be parsed alike, but a stream does not end by itself before all its
  // messages are read. Parsing clears response_ first, the end leaves it as it was: with this mark.
  void ReadNext() {
    response_.GetReflection()->MutableUnknownFields(&response_)->AddVarint(1, 0);
    this->StartRead(&response_);
  }

  // gRPC hands this object from the thread that starts the call to its own by means that ThreadSanitizer does not see; a
  // lock it sees.
  void Synchronize() { std::lock_guard<std::mutex> lock(mutex_); }

  void WaitUntilDone() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return done_; });
  }

  const StreamHandler handler_;
  const std::string target_;
  grpc::ClientContext context_;
  Response response_;
  bool completed_ = false, unreadable_ = false;  // library thread only
  absl::Status status_;                          // written before done_
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;  // guarded by mutex_
};

class ClientImpl final : public Client {
 public:
  ClientImpl(const std::string& target, std::shared_ptr<grpc::Channel> channel)
      : target_(target),
        generation_(v1::GenerationService::NewStub(channel)),
        tokenizer_(v1::TokenizerService::NewStub(channel)),
        model_(v1::ModelService::NewStub(channel)),
        admin_(v1::AdminService::NewStub(channel)),
        health_(grpc::health::v1::Health::NewStub(channel)) {}

  absl::StatusOr<v1::CompleteResponse> Complete(const v1::CompleteRequest& request,
                                                const CallOptions& options) override {
    return Unary<v1::CompleteResponse>(*generation_, &v1::GenerationService::Stub::Complete, request, options);
  }
  absl::StatusOr<v1::ChatResponse> Chat(const v1::ChatRequest& request, const CallOptions& options) override {
    return Unary<v1::ChatResponse>(*generation_, &v1::GenerationService::Stub::Chat, request, options);
  }
  std::unique_ptr<Stream> StreamComplete(const v1::StreamCompleteRequest& request, StreamHandler handler,
                                         const CallOptions& options) override {
    auto stream = std::make_unique<StreamImpl<v1::StreamCompleteResponse>>(std::move(handler), target_);
    Prepare(stream->context(), options);
    generation_->async()->StreamComplete(&stream->context(), &request, stream.get());
    stream->Start();
    return stream;
  }
  std::unique_ptr<Stream> StreamChat(const v1::StreamChatRequest& request, StreamHandler handler,
                                     const CallOptions& options) override {
    auto stream = std::make_unique<StreamImpl<v1::StreamChatResponse>>(std::move(handler), target_);
    Prepare(stream->context(), options);
    generation_->async()->StreamChat(&stream->context(), &request, stream.get());
    stream->Start();
    return stream;
  }
  absl::Status CancelRequest(const std::string& request_id, const CallOptions& options) override {
    v1::CancelRequestRequest request;
    request.set_request_id(request_id);
    return Unary<v1::CancelRequestResponse>(*generation_, &v1::GenerationService::Stub::CancelRequest, request, options)
        .status();
  }

  absl::StatusOr<v1::TokenizeResponse> Tokenize(const v1::TokenizeRequest& request,
                                                const CallOptions& options) override {
    return Unary<v1::TokenizeResponse>(*tokenizer_, &v1::TokenizerService::Stub::Tokenize, request, options);
  }
  absl::StatusOr<v1::DetokenizeResponse> Detokenize(const v1::DetokenizeRequest& request,
                                                    const CallOptions& options) override {
    return Unary<v1::DetokenizeResponse>(*tokenizer_, &v1::TokenizerService::Stub::Detokenize, request, options);
  }
  absl::StatusOr<v1::RenderChatResponse> RenderChat(const v1::RenderChatRequest& request,
                                                    const CallOptions& options) override {
    return Unary<v1::RenderChatResponse>(*tokenizer_, &v1::TokenizerService::Stub::RenderChat, request, options);
  }
  absl::StatusOr<v1::ListModelsResponse> ListModels(const CallOptions& options) override {
    return Unary<v1::ListModelsResponse>(*model_, &v1::ModelService::Stub::ListModels, v1::ListModelsRequest(),
                                         options);
  }

  absl::StatusOr<HealthStatus> CheckHealth(const std::string& service, const CallOptions& options) override {
    using grpc::health::v1::HealthCheckResponse;
    grpc::health::v1::HealthCheckRequest request;
    request.set_service(service);
    auto response = Unary<HealthCheckResponse>(*health_, &grpc::health::v1::Health::Stub::Check, request, options);
    if (absl::IsNotFound(response.status())) return HealthStatus::kServiceUnknown;
    if (!response.ok()) return response.status();
    return response->status() == HealthCheckResponse::SERVING ? HealthStatus::kServing : HealthStatus::kNotServing;
  }

  absl::StatusOr<v1::GetServerInfoResponse> GetServerInfo(const CallOptions& options) override {
    return Unary<v1::GetServerInfoResponse>(*admin_, &v1::AdminService::Stub::GetServerInfo, v1::GetServerInfoRequest(),
                                            options);
  }
  absl::StatusOr<v1::GetLoadResponse> GetLoad(const CallOptions& options) override {
    return Unary<v1::GetLoadResponse>(*admin_, &v1::AdminService::Stub::GetLoad, v1::GetLoadRequest(), options);
  }
  absl::StatusOr<v1::DrainResponse> Drain(const CallOptions& options) override {
    return Unary<v1::DrainResponse>(*admin_, &v1::AdminService::Stub::Drain, v1::DrainRequest(), options);
  }

 private:
  template <class Response, class Stub, class Request>
  absl::StatusOr<Response> Unary(Stub& stub,
                                 grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                                 const Request& request, const CallOptions& options) {
    grpc::ClientContext context;
    Prepare(context, options);
    Response response;
    const grpc::Status status = (stub.*method)(&context, request, &response);
    if (!status.ok()) return ToAbsl(status, target_);
    return response;
  }

  const std::string target_;
  const std::unique_ptr<v1::GenerationService::Stub> generation_;
  const std::unique_ptr<v1::TokenizerService::Stub> tokenizer_;
  const std::unique_ptr<v1::ModelService::Stub> model_;
  const std::unique_ptr<v1::AdminService::Stub> admin_;
  const std::unique_ptr<grpc::health::v1::Health::Stub> health_;
};

}  // namespace

ErrorDetails GetErrorDetails(const absl::Status& status) {
  ErrorDetails result;
  const absl::optional<absl::Cord> payload = status.GetPayload(kStatusPayload);
  google::rpc::Status details;
  if (!payload || !details.ParseFromString(std::string(*payload))) return result;
  for (const auto& any : details.details()) {
    google::rpc::ErrorInfo info;
    google::rpc::BadRequest bad_request;
    google::rpc::RetryInfo retry;
    if (any.UnpackTo(&info)) {
      result.reason = info.reason();
    } else if (any.UnpackTo(&bad_request)) {
      for (const auto& violation : bad_request.field_violations()) {
        result.fields.push_back({violation.field(), violation.description()});
      }
    } else if (any.UnpackTo(&retry)) {
      result.retry_after =
          std::chrono::milliseconds(google::protobuf::util::TimeUtil::DurationToMilliseconds(retry.retry_delay()));
    }
  }
  return result;
}

std::unique_ptr<Client> Client::Create(const std::string& target, const ClientOptions& options) {
  grpc::ChannelArguments arguments;
  arguments.SetServiceConfigJSON(ServiceConfig(options));
  arguments.SetMaxReceiveMessageSize(options.max_message_bytes);
  arguments.SetMaxSendMessageSize(options.max_message_bytes);
  arguments.SetUserAgentPrefix("sluice-client");
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, int(options.keepalive_time.count()));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, int(options.keepalive_timeout.count()));
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);  // as many as it takes
  if (options.own_connection) arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // gRPC would send even these to the proxy of the environment's http_proxy.
  if (IsLoopback(target)) arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return std::make_unique<ClientImpl>(target,
                                      grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(), arguments));
}

}  // namespace sluice::client
