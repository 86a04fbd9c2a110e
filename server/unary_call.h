// Plain unary calls, which have their answer at once.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include "server/grpc_status.h"
#include "server/metrics.h"
#include "server/request_message.h"

namespace sluice {

// `answer` is called with the request of `bytes`, if it can be read, and
// (const Request&, Response*) -> absl::Status fills what goes into `out`.
template <class Request, class Response, class Answer>
grpc::ServerUnaryReactor* AnswerUnary(grpc::CallbackServerContext* context, const grpc::ByteBuffer* bytes,
                                      grpc::ByteBuffer* out, const LimitOptions& limits, Metrics* metrics,
                                      const Answer& answer) {
  Request request;
  int64_t memory_bytes = 0;
  Response response;
  absl::Status status = ReadRequest(bytes, limits, &request, &memory_bytes);
  if (status.ok()) status = answer(request, &response);
  if (status.ok()) *out = ToBytes(response);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  FinishCall(context, reactor, status, metrics);
  return reactor;
}

}  // namespace sluice
