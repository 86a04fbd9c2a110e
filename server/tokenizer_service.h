// sluice.v1.TokenizerService, on ingress threads of its own.
#pragma once

#include "server/calls/front_desk.h"
#include "sluice/v1/tokenizer.grpc.pb.h"

namespace sluice {

// Takes bytes: see request_message.h.
using RawTokenizerService = v1::TokenizerService::WithRawCallbackMethod_Tokenize<
    v1::TokenizerService::WithRawCallbackMethod_Detokenize<
        v1::TokenizerService::WithRawCallbackMethod_RenderChat<v1::TokenizerService::Service>>>;

class TokenizerService final : public RawTokenizerService {
 public:
  // `desk` outlives the service.
  explicit TokenizerService(FrontDesk* desk) : desk_(*desk) {}

  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Detokenize(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* RenderChat(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) override;

 private:
  // Runs `answer` (const Request&, const ServedModel&, AnswerReactor* -> absl::Status) on an ingress thread, unless the
  // client has left by then.
  template <class Request, class Answer>
  grpc::ServerUnaryReactor* Run(grpc::CallbackServerContext* context, const grpc::ByteBuffer* bytes,
                                grpc::ByteBuffer* out, Answer answer);

  FrontDesk& desk_;
};

}  // namespace sluice
