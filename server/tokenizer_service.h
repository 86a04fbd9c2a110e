// sluice.v1.TokenizerService, on the tokenizer's own ingress thread.
#pragma once

#include "server/front_desk.h"
#include "sluice/v1/tokenizer.grpc.pb.h"

namespace sluice {

class TokenizerService final : public v1::TokenizerService::CallbackService {
 public:
  // `desk` outlives the service.
  explicit TokenizerService(FrontDesk* desk) : desk_(*desk) {}

  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context, const v1::TokenizeRequest* request,
                                     v1::TokenizeResponse* response) override;
  grpc::ServerUnaryReactor* Detokenize(grpc::CallbackServerContext* context, const v1::DetokenizeRequest* request,
                                       v1::DetokenizeResponse* response) override;
  grpc::ServerUnaryReactor* RenderChat(grpc::CallbackServerContext* context, const v1::RenderChatRequest* request,
                                       v1::RenderChatResponse* response) override;

 private:
  // Runs `answer` (Request, ServedModel, Response* -> Status) on the ingress thread, unless the client has left by
  // then.
  template <class Request, class Response, class Answer>
  grpc::ServerUnaryReactor* Run(grpc::CallbackServerContext* context, const Request* request, Response* response,
                                Answer answer);

  FrontDesk& desk_;
};

}  // namespace sluice
