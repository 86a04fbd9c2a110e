#include "server/generation_service.h"

#include <string>
#include <utility>

#include "server/deadline.h"
#include "server/request_message.h"
#include "server/stream_reactor.h"
#include "server/unary_call.h"
#include "server/unary_reactor.h"

namespace sluice {
namespace {

std::string HeaderRequestId(const grpc::CallbackServerContext& context) {
  const auto it = context.client_metadata().find("x-request-id");
  return it == context.client_metadata().end() ? "" : std::string(it->second.data(), it->second.size());
}

}  // namespace

template <class Request, class Reactor>
Reactor* GenerationService::Begin(grpc::CallbackServerContext* context, const grpc::ByteBuffer* bytes,
                                  const std::shared_ptr<Reactor>& reactor) {
  const int64_t now_ns = desk_.clock.NowNs();
  auto request = std::make_shared<Request>();
  int64_t memory_bytes = 0;
  const absl::Status readable = ReadRequest(bytes, desk_.options.limits, request.get(), &memory_bytes);
  calls_.Begin(std::shared_ptr<const Request>(std::move(request)), readable, memory_bytes,
               {.peer = context->peer(),
                .header_request_id = HeaderRequestId(*context),
                .arrival_ns = now_ns,
                .deadline_ns = DeadlineNs(context->raw_deadline(), now_ns)},
               reactor);
  return reactor.get();
}

grpc::ServerUnaryReactor* GenerationService::Complete(grpc::CallbackServerContext* context,
                                                      const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
  return Begin<v1::CompleteRequest>(context, request, UnaryReactor::Create(context, response, &desk_, &calls_));
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* GenerationService::StreamComplete(grpc::CallbackServerContext* context,
                                                                              const grpc::ByteBuffer* request) {
  return Begin<v1::CompleteRequest>(context, request, StreamReactor::Create(context, &desk_, &calls_));
}

grpc::ServerUnaryReactor* GenerationService::Chat(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                                  grpc::ByteBuffer* response) {
  return Begin<v1::ChatRequest>(context, request, UnaryReactor::Create(context, response, &desk_, &calls_));
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* GenerationService::StreamChat(grpc::CallbackServerContext* context,
                                                                          const grpc::ByteBuffer* request) {
  return Begin<v1::ChatRequest>(context, request, StreamReactor::Create(context, &desk_, &calls_));
}

grpc::ServerUnaryReactor* GenerationService::CancelRequest(grpc::CallbackServerContext* context,
                                                           const grpc::ByteBuffer* request,
                                                           grpc::ByteBuffer* response) {
  const auto answer = [&](const v1::CancelRequestRequest& asked, v1::CancelRequestResponse*) {
    return calls_.Cancel(context->peer(), asked.request_id());
  };
  return AnswerUnary<v1::CancelRequestRequest, v1::CancelRequestResponse>(context, request, response,
                                                                          desk_.options.limits, &desk_.metrics, answer);
}

}  // namespace sluice
