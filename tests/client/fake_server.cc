#include "tests/client/fake_server.h"

#include <google/protobuf/util/time_util.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "proto/answer.h"
#include "sluice/v1/admin.grpc.pb.h"
#include "sluice/v1/generation.grpc.pb.h"
#include "sluice/v1/model.grpc.pb.h"
#include "sluice/v1/tokenizer.grpc.pb.h"

namespace sluice::client {
namespace {

using Event = v1::GenerationEvent;
using grpc::ServerContext;
using grpc::Status;
using std::chrono::milliseconds;

Status ToGrpc(const Failure& failure) {
  google::rpc::Status details;
  if (!failure.reason.empty()) {
    google::rpc::ErrorInfo info;
    info.set_reason(failure.reason);
    info.set_domain("sluice");
    details.add_details()->PackFrom(info);
  }
  if (!failure.fields.empty()) {
    google::rpc::BadRequest bad_request;
    for (const auto& [field, description] : failure.fields) {
      auto* violation = bad_request.add_field_violations();
      violation->set_field(field);
      violation->set_description(description);
    }
    details.add_details()->PackFrom(bad_request);
  }
  if (failure.retry_ms) {
    google::rpc::RetryInfo retry;
    *retry.mutable_retry_delay() = google::protobuf::util::TimeUtil::MillisecondsToDuration(*failure.retry_ms);
    details.add_details()->PackFrom(retry);
  }
  return Status(static_cast<grpc::StatusCode>(failure.code), failure.message,
                details.details_size() > 0 ? details.SerializeAsString() : "");
}

// The unary and the streaming requests have the same fields under the same numbers.
template <class To, class From>
To Recast(const From& from) {
  To to;
  to.ParseFromString(from.SerializeAsString());
  return to;
}

template <class Response>
Response Wrapped(const Event& event) {
  Response response;
  *response.mutable_event() = event;
  return response;
}

// What the services share.
class Stage {
 public:
  void Script(std::vector<Answer> answers) {
    const std::lock_guard<std::mutex> lock(mutex_);
    answers_ = std::move(answers);
    next_ = 0;
  }

  // Notes a call; returns its number and its answer.
  std::pair<size_t, Answer> Enter(Call call, const ServerContext& context) {
    for (const auto& [key, value] : context.client_metadata()) {
      call.metadata.emplace(std::string(key.data(), key.size()), std::string(value.data(), value.size()));
    }
    if (context.deadline() != std::chrono::system_clock::time_point::max()) {
      call.deadline = std::chrono::duration_cast<milliseconds>(context.deadline() - std::chrono::system_clock::now());
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    calls_.push_back(std::move(call));
    changed_.notify_all();
    const Answer answer = answers_.empty() ? Say({"ok"}) : answers_[std::min(next_, answers_.size() - 1)];
    ++next_;
    return {calls_.size() - 1, answer};
  }

  void NoteCancel(size_t number) {
    const std::lock_guard<std::mutex> lock(mutex_);
    calls_[number].cancelled = true;
    changed_.notify_all();
  }

  std::vector<Call> calls() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return calls_;
  }

  bool WaitFor(const std::function<bool(const std::vector<Call>&)>& holds) const {
    std::unique_lock<std::mutex> lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(30), [&] { return holds(calls_); });
  }

  void FailOthers(std::optional<Failure> failure) {
    const std::lock_guard<std::mutex> lock(mutex_);
    failure_ = std::move(failure);
  }
  void DelayOthers(milliseconds delay) {
    const std::lock_guard<std::mutex> lock(mutex_);
    delay_ = delay;
  }
  // How a method that is not GenerationService's ends.
  Status EndOther() const {
    std::unique_lock<std::mutex> lock(mutex_);
    const milliseconds delay = delay_;
    lock.unlock();
    std::this_thread::sleep_for(delay);
    return OtherStatus();
  }
  Status OtherStatus() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return failure_ ? ToGrpc(*failure_) : Status::OK;
  }

  void SetHealth(const std::string& service, bool serving) {
    const std::lock_guard<std::mutex> lock(mutex_);
    health_[service] = serving;
  }
  void SetState(v1::ModelState state) { state_ = state; }
  v1::ModelState state() const { return state_; }
  void SetChatTemplate(bool has_chat_template) { has_chat_template_ = has_chat_template; }
  bool has_chat_template() const { return has_chat_template_; }
  std::optional<bool> health(const std::string& service) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = health_.find(service);
    return found == health_.end() ? std::nullopt : std::optional<bool>(found->second);
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::vector<Answer> answers_;
  size_t next_ = 0;
  std::vector<Call> calls_;
  std::optional<Failure> failure_;
  milliseconds delay_{0};
  std::map<std::string, bool> health_ = {{"", true}};
  std::atomic<v1::ModelState> state_{v1::MODEL_STATE_READY};
  std::atomic<bool> has_chat_template_{true};
};

class Generation final : public v1::GenerationService::Service {
 public:
  explicit Generation(Stage& stage) : stage_(stage) {}

  Status StreamComplete(ServerContext* context, const v1::StreamCompleteRequest* request,
                        grpc::ServerWriter<v1::StreamCompleteResponse>* writer) override {
    Call call;
    call.method = "StreamComplete";
    call.complete = *request;
    return Perform(std::move(call), request->options(), *context,
                   [&](const Event& event) { writer->Write(Wrapped<v1::StreamCompleteResponse>(event)); });
  }
  Status StreamChat(ServerContext* context, const v1::StreamChatRequest* request,
                    grpc::ServerWriter<v1::StreamChatResponse>* writer) override {
    Call call;
    call.method = "StreamChat";
    call.chat = *request;
    return Perform(std::move(call), request->options(), *context,
                   [&](const Event& event) { writer->Write(Wrapped<v1::StreamChatResponse>(event)); });
  }
  Status Complete(ServerContext* context, const v1::CompleteRequest* request, v1::CompleteResponse* response) override {
    Call call;
    call.method = "Complete";
    call.complete = Recast<v1::StreamCompleteRequest>(*request);
    return Perform(std::move(call), request->options(), *context,
                   [&](const Event& event) { Fold(event, response->mutable_generated()); });
  }
  Status Chat(ServerContext* context, const v1::ChatRequest* request, v1::ChatResponse* response) override {
    Call call;
    call.method = "Chat";
    call.chat = Recast<v1::StreamChatRequest>(*request);
    return Perform(std::move(call), request->options(), *context,
                   [&](const Event& event) { Fold(event, response->mutable_generated()); });
  }
  Status CancelRequest(ServerContext*, const v1::CancelRequestRequest* request, v1::CancelRequestResponse*) override {
    if (request->request_id() == "known") return stage_.EndOther();
    return ToGrpc({grpc::NOT_FOUND, "no call '" + request->request_id() + "' is in progress", "REQUEST_NOT_FOUND"});
  }

 private:
  Status Perform(Call call, const v1::GenerateOptions& options, const ServerContext& context,
                 const std::function<void(const Event&)>& send) {
    const auto [number, answer] = stage_.Enter(std::move(call), context);
    for (Event event : answer.events) {
      if (context.IsCancelled()) break;
      std::this_thread::sleep_for(answer.pause);
      if (event.has_delta() && !options.return_token_ids()) event.mutable_delta()->clear_token_ids();
      send(event);
    }
    while (answer.hang && !context.IsCancelled()) std::this_thread::sleep_for(milliseconds(2));
    if (context.IsCancelled()) stage_.NoteCancel(number);
    return answer.failure ? ToGrpc(*answer.failure) : Status::OK;
  }

  Stage& stage_;
};

// Its tokens are the bytes.
class Tokenizer final : public v1::TokenizerService::Service {
 public:
  explicit Tokenizer(Stage& stage) : stage_(stage) {}
  Status Tokenize(ServerContext*, const v1::TokenizeRequest* request, v1::TokenizeResponse* response) override {
    if (request->has_parse_special() && !request->parse_special()) response->add_token_ids(999);
    if (response->token_ids_size() > 0) response->add_token_bytes("<plain>");
    for (unsigned char c : request->text()) {
      response->add_token_ids(c);
      response->add_token_bytes(std::string(1, char(c)));
    }
    return stage_.EndOther();
  }
  Status Detokenize(ServerContext*, const v1::DetokenizeRequest* request, v1::DetokenizeResponse* response) override {
    for (uint32_t id : request->token_ids()) response->mutable_text()->push_back(char(id));
    return stage_.EndOther();
  }
  Status RenderChat(ServerContext*, const v1::RenderChatRequest* request, v1::RenderChatResponse* response) override {
    for (const auto& message : request->messages()) response->mutable_prompt()->append(message.content(0).text());
    return stage_.EndOther();
  }

 private:
  Stage& stage_;
};

class Models final : public v1::ModelService::Service {
 public:
  explicit Models(Stage& stage) : stage_(stage) {}
  Status ListModels(ServerContext*, const v1::ListModelsRequest*, v1::ListModelsResponse* response) override {
    v1::Model* model = response->add_models();
    model->set_id("fake-1");
    model->add_aliases("fake");
    model->set_state(stage_.state());
    if (stage_.state() == v1::MODEL_STATE_LOADING) return stage_.EndOther();
    model->set_architecture("llama");
    model->set_vocab_size(1000);
    model->set_max_model_len(2048);
    model->set_context_length(8192);
    model->set_weight_type("Q4_1");
    model->set_activations("int16");
    model->set_kv_type("f16");
    model->add_eos_token_ids(2);
    model->set_has_chat_template(stage_.has_chat_template());
    model->set_num_parameters(134'515'008);
    return stage_.EndOther();
  }

 private:
  Stage& stage_;
};

class Admin final : public v1::AdminService::Service {
 public:
  explicit Admin(Stage& stage) : stage_(stage) {}
  Status GetServerInfo(ServerContext*, const v1::GetServerInfoRequest*, v1::GetServerInfoResponse* response) override {
    response->set_version("9.9.9");
    return stage_.EndOther();
  }
  Status GetLoad(ServerContext*, const v1::GetLoadRequest*, v1::GetLoadResponse* response) override {
    response->set_state(stage_.state());
    if (stage_.state() == v1::MODEL_STATE_LOADING) return stage_.EndOther();
    response->set_draining(stage_.state() != v1::MODEL_STATE_READY);
    response->set_running(3);
    response->set_waiting(1);
    response->set_waiting_tokens(77);
    response->set_kv_blocks_live(50);
    response->set_kv_blocks_cached(25);
    response->set_kv_blocks_free(25);
    response->set_kv_blocks_total(100);
    response->set_generation_tokens_per_second(123.5);
    response->set_prompt_tokens_per_second(456.25);
    response->set_preemptions(2);
    return stage_.EndOther();
  }
  Status Drain(ServerContext*, const v1::DrainRequest*, v1::DrainResponse* response) override {
    response->set_running(3);
    return stage_.EndOther();
  }

 private:
  Stage& stage_;
};

class Health final : public grpc::health::v1::Health::Service {
 public:
  using Request = grpc::health::v1::HealthCheckRequest;
  using Response = grpc::health::v1::HealthCheckResponse;
  explicit Health(Stage& stage) : stage_(stage) {}

  Status Check(ServerContext*, const Request* request, Response* response) override {
    const std::optional<bool> serving = stage_.health(request->service());
    if (Status status = stage_.OtherStatus(); !status.ok()) return status;
    if (!serving) return Status(grpc::NOT_FOUND, "unknown service");
    response->set_status(*serving ? Response::SERVING : Response::NOT_SERVING);
    return Status::OK;
  }
  Status Watch(ServerContext* context, const Request* request, grpc::ServerWriter<Response>* writer) override {
    std::optional<bool> told;
    while (!context->IsCancelled()) {
      const bool serving = stage_.health(request->service()).value_or(false);
      if (told != serving) {
        Response response;
        response.set_status(serving ? Response::SERVING : Response::NOT_SERVING);
        writer->Write(response);
        told = serving;
      }
      std::this_thread::sleep_for(milliseconds(2));
    }
    return Status::CANCELLED;
  }

 private:
  Stage& stage_;
};

class FakeServerImpl final : public FakeServer {
 public:
  FakeServerImpl() : generation_(stage_), tokenizer_(stage_), models_(stage_), admin_(stage_), health_(stage_) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    for (grpc::Service* service :
         std::initializer_list<grpc::Service*>{&generation_, &tokenizer_, &models_, &admin_, &health_}) {
      builder.RegisterService(service);
    }
    server_ = builder.BuildAndStart();
  }
  ~FakeServerImpl() override { server_->Shutdown(std::chrono::system_clock::now()); }

  std::string address() const override { return "127.0.0.1:" + std::to_string(port_); }
  void Script(std::vector<Answer> answers) override { stage_.Script(std::move(answers)); }
  std::vector<Call> calls() const override { return stage_.calls(); }
  bool WaitForCalls(size_t n) const override {
    return stage_.WaitFor([n](const std::vector<Call>& calls) { return calls.size() >= n; });
  }
  bool WaitForCancels(size_t n) const override {
    return stage_.WaitFor([n](const std::vector<Call>& calls) {
      size_t cancelled = 0;
      for (const Call& call : calls) cancelled += call.cancelled ? 1 : 0;
      return cancelled >= n;
    });
  }
  void FailOthers(std::optional<Failure> failure) override { stage_.FailOthers(std::move(failure)); }
  void DelayOthers(milliseconds delay) override { stage_.DelayOthers(delay); }
  void SetHealth(const std::string& service, bool serving) override { stage_.SetHealth(service, serving); }
  void SetState(v1::ModelState state) override { stage_.SetState(state); }
  void SetChatTemplate(bool has_chat_template) override { stage_.SetChatTemplate(has_chat_template); }

 private:
  Stage stage_;
  Generation generation_;
  Tokenizer tokenizer_;
  Models models_;
  Admin admin_;
  Health health_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace

Answer SayAndHang(const std::vector<std::string>& texts) {
  Answer answer;
  v1::Started* started = answer.events.emplace_back().mutable_started();
  started->set_request_id("req-1");
  started->set_server_request_id("srv-1");
  started->set_model("fake-1");
  started->set_seed(42);
  started->set_prompt_tokens(5);
  started->set_cached_tokens(2);
  uint32_t token = 0;
  for (const std::string& text : texts) {
    v1::Delta* delta = answer.events.emplace_back().mutable_delta();
    delta->set_text(text);
    delta->add_token_ids(++token);
  }
  answer.hang = true;
  return answer;
}

Answer Say(const std::vector<std::string>& texts) {
  Answer answer = SayAndHang(texts);
  answer.hang = false;
  answer.events.emplace_back().mutable_choice_finished()->set_finish_reason(v1::FINISH_REASON_STOP);
  v1::Completed* completed = answer.events.emplace_back().mutable_completed();
  completed->mutable_usage()->set_prompt_tokens(5);
  completed->mutable_usage()->set_completion_tokens(uint32_t(texts.size()));
  completed->mutable_usage()->set_cached_tokens(2);
  completed->mutable_timings()->set_queue_ms(1.5);
  completed->mutable_timings()->set_prefill_ms(2.5);
  completed->mutable_timings()->set_decode_ms(100);
  completed->mutable_timings()->set_ttft_ms(4.5);
  return answer;
}

Answer Fail(Failure failure) {
  Answer answer;
  answer.failure = std::move(failure);
  return answer;
}

std::unique_ptr<FakeServer> FakeServer::Start() { return std::make_unique<FakeServerImpl>(); }

}  // namespace sluice::client
