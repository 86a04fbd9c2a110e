#include "server/generation_service.h"

#include <sys/random.h>

#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "engine/base/check.h"
#include "engine/base/status_macros.h"
#include "server/convert.h"
#include "server/deadline.h"
#include "server/prompt.h"
#include "server/status.h"
#include "server/stream_reactor.h"
#include "server/unary_call.h"
#include "server/unary_reactor.h"

namespace sluice {
namespace {

// 128 random bits: knowing it is the right to cancel the call.
std::string NewServerRequestId() {
  char bytes[16];
  SLUICE_CHECK(getrandom(bytes, sizeof bytes, 0) == ssize_t(sizeof bytes));
  return absl::StrCat("req-", absl::BytesToHexString(absl::string_view(bytes, sizeof bytes)));
}

// The x-request-id of the client or a proxy; empty if there is none that can be repeated.
std::string HeaderRequestId(const grpc::CallbackServerContext& context) {
  const auto it = context.client_metadata().find("x-request-id");
  if (it == context.client_metadata().end()) return "";
  std::string id(it->second.data(), it->second.size());
  return internal::CheckRequestId(id).ok() ? id : "";
}

// The client's clock began when it sent the call, ours when the call arrived: its reset may come this much before our
// deadline and is that deadline nevertheless.
constexpr int64_t kDeadlineSlackNs = 50'000'000;

std::vector<Request> EngineRequests(const std::shared_ptr<Call>& call) {
  const Generation& generation = call->generation();
  std::vector<Request> requests(size_t(generation.num_choices));
  for (int i = 0; i < generation.num_choices; ++i) {
    Request& request = requests[size_t(i)];
    request.prompt_tokens = generation.prompt_tokens;
    request.sampling = generation.sampling;
    request.sampling.seed += uint64_t(i);
    // The same for every choice, so one reports it.
    if (i > 0) request.sampling.prompt_logprobs.reset();
    request.deadline_ns = call->deadline_ns();
    request.context = std::make_shared<ChoiceContext>(ChoiceContext{call, i});
  }
  return requests;
}

}  // namespace

template <class Request, class Reactor>
void GenerationService::Begin(grpc::CallbackServerContext* context, const grpc::ByteBuffer* bytes,
                              const std::shared_ptr<Reactor>& reactor) {
  const int64_t now_ns = desk_.clock.NowNs();
  // Shared by nobody: std::function wants to be copied.
  const auto request = std::make_shared<Request>();
  int64_t memory_bytes = 0;
  absl::Status readable = ReadRequest(bytes, desk_.request_limits(), request.get(), &memory_bytes);
  if (readable.ok()) readable = internal::CheckRequestId(request->request_id());
  CallIdentity identity;
  identity.server_request_id = NewServerRequestId();
  std::string cancel_key = readable.ok() ? request->request_id() : "";
  identity.request_id = cancel_key.empty() ? HeaderRequestId(*context) : cancel_key;
  if (identity.request_id.empty()) identity.request_id = identity.server_request_id;
  identity.arrival_ns = now_ns;
  identity.create_time_ns = FrontDesk::NowSinceEpochNs();
  identity.metadata.assign(request->metadata().begin(), request->metadata().end());
  identity.user = request->user();
  identity.model = desk_.options.model.names.front();
  const std::string request_id = identity.request_id, server_request_id = identity.server_request_id;

  const auto call = std::make_shared<Call>(std::move(identity), context->peer(), std::move(cancel_key),
                                           DeadlineNs(context->raw_deadline(), now_ns), reactor);
  reactor->SetOptions({.request_id = request_id,
                       .server_request_id = server_request_id,
                       .max_pending_bytes = size_t(desk_.options.limits.max_stream_buffer_bytes),
                       .max_answer_bytes = size_t(desk_.options.limits.max_connection_buffer_bytes),
                       .peer = call->peer(),
                       .budget = &desk_.output,
                       .metrics = &desk_.metrics,
                       .on_gone = [this, weak = std::weak_ptr<Call>(call)](ClientGone why) {
                         if (const auto call = weak.lock()) OnClientGone(call, why);
                       },
                       .on_over = [this, server_request_id] { desk_.calls.CloseReply(server_request_id); }});
  if (!readable.ok()) return Refuse(call, readable);
  const auto model = desk_.ModelForCall();
  if (!model.ok()) return Refuse(call, model.status());
  if (absl::Status status = (*model)->CheckName(request->model()); !status.ok()) return Refuse(call, status);
  if (absl::Status status = desk_.calls.Add(call); !status.ok()) return Refuse(call, status);
  const bool has_template = requires { request->messages(); };
  const absl::Status posted = desk_.ingress.Post(
      {.peer = call->peer(), .bytes = memory_bytes, .by_bytes_alone = !has_template},
      [this, request, model = *model, call] {
        absl::Status status = Submit(*request, model, call);
        if (!status.ok()) Refuse(call, status);
      });
  if (!posted.ok()) Refuse(call, posted);
}

template <class Request>
absl::Status GenerationService::Submit(const Request& request, ServedModel* model, const std::shared_ptr<Call>& call) {
  SLUICE_RETURN_IF_ERROR(call->stop_status());
  SLUICE_RETURN_IF_ERROR(CheckEnvelope(request));
  SLUICE_RETURN_IF_ERROR(CheckOptions(request.options(), *model));
  SLUICE_ASSIGN_OR_RETURN(std::vector<int32_t> tokens, PromptTokens(request, *model));
  SLUICE_ASSIGN_OR_RETURN(
      Generation generation,
      ConvertGeneration(request.options(), std::move(tokens), PromptField(request), *model));
  SLUICE_RETURN_IF_ERROR(call->stop_status());
  call->SetGeneration(std::move(generation), model->host().tokenizer.get(), &desk_.metrics);
  SLUICE_ASSIGN_OR_RETURN(std::vector<SequenceId> ids, model->engine().Submit(EngineRequests(call)));
  call->SetSubmitted(&model->engine(), std::move(ids));
  return absl::OkStatus();
}

void GenerationService::Refuse(const std::shared_ptr<Call>& call, const absl::Status& status) {
  LogEnd(call->identity(), status);
  desk_.metrics.CountRefused(OutcomeOf(status));
  desk_.calls.Remove(*call);
  call->reply().Close(status);
}

void GenerationService::OnClientGone(const std::shared_ptr<Call>& call, ClientGone why) {
  if (why == ClientGone::kNotReading) {
    call->Stop(FinishReason::kCancelled,
               CallError(absl::StatusCode::kAborted, kReasonSlowConsumer, "the client does not read"));
  } else if (why == ClientGone::kTooLarge) {
    call->Stop(FinishReason::kCancelled, CallError(absl::StatusCode::kResourceExhausted, kReasonAnswerTooLarge,
                                                   "the answer is too large"));
  } else if (call->deadline_ns().has_value() && desk_.clock.NowNs() + kDeadlineSlackNs >= *call->deadline_ns()) {
    call->Stop(FinishReason::kDeadline,
               CallError(absl::StatusCode::kDeadlineExceeded, kReasonDeadline, "the call's deadline has passed"));
  } else {
    call->Stop(FinishReason::kCancelled,
               CallError(absl::StatusCode::kCancelled, kReasonCancelled, "the client has left"));
  }
  // Its id can be used again at once.
  desk_.calls.Remove(*call);
}

grpc::ServerUnaryReactor* GenerationService::Complete(grpc::CallbackServerContext* context,
                                                      const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
  const auto reactor = UnaryReactor::Create(context, response);
  Begin<v1::CompleteRequest>(context, request, reactor);
  return reactor.get();
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* GenerationService::StreamComplete(grpc::CallbackServerContext* context,
                                                                              const grpc::ByteBuffer* request) {
  const auto reactor = StreamReactor::Create(context);
  Begin<v1::StreamCompleteRequest>(context, request, reactor);
  return reactor.get();
}

grpc::ServerUnaryReactor* GenerationService::Chat(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                                  grpc::ByteBuffer* response) {
  const auto reactor = UnaryReactor::Create(context, response);
  Begin<v1::ChatRequest>(context, request, reactor);
  return reactor.get();
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* GenerationService::StreamChat(grpc::CallbackServerContext* context,
                                                                          const grpc::ByteBuffer* request) {
  const auto reactor = StreamReactor::Create(context);
  Begin<v1::StreamChatRequest>(context, request, reactor);
  return reactor.get();
}

grpc::ServerUnaryReactor* GenerationService::CancelRequest(grpc::CallbackServerContext* context,
                                                           const grpc::ByteBuffer* request,
                                                           grpc::ByteBuffer* response) {
  const auto answer = [&](const v1::CancelRequestRequest& asked, v1::CancelRequestResponse*) {
    return Cancel(asked, context->peer());
  };
  return AnswerUnary<v1::CancelRequestRequest, v1::CancelRequestResponse>(context, request, response,
                                                                          desk_.request_limits(), &desk_.metrics, answer);
}

absl::Status GenerationService::Cancel(const v1::CancelRequestRequest& request, const std::string& peer) {
  if (request.request_id().empty()) {
    return InvalidField("request_id", "found nothing, expected the id of a call");
  }
  const std::shared_ptr<Call> call = desk_.calls.Find(peer, request.request_id());
  if (call == nullptr) {
    return CallError(absl::StatusCode::kNotFound, kReasonRequestNotFound,
                     absl::StrCat("request_id: no call ", Quoted(request.request_id()),
                                  " of this connection is in progress; from another connection a call is cancelled by "
                                  "its server_request_id"));
  }
  call->Stop(FinishReason::kCancelled,
             CallError(absl::StatusCode::kCancelled, kReasonCancelled, "the call was cancelled by CancelRequest"));
  return absl::OkStatus();
}

}  // namespace sluice
