// sluice.v1.GenerationService: calls that come over gRPC, whose threads only hand them over; none of them ever waits.
#pragma once

#include <memory>

#include "server/calls/calls.h"
#include "server/calls/front_desk.h"
#include "sluice/v1/generation.grpc.pb.h"

namespace sluice {

// Takes bytes: see request_message.h.
using RawGenerationService = v1::GenerationService::WithRawCallbackMethod_Complete<
    v1::GenerationService::WithRawCallbackMethod_StreamComplete<v1::GenerationService::WithRawCallbackMethod_Chat<
        v1::GenerationService::WithRawCallbackMethod_StreamChat<
            v1::GenerationService::WithRawCallbackMethod_CancelRequest<v1::GenerationService::Service>>>>>;

class GenerationService final : public RawGenerationService {
 public:
  // Both outlive the service.
  GenerationService(FrontDesk* desk, Calls* calls) : desk_(*desk), calls_(*calls) {}

  grpc::ServerUnaryReactor* Complete(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* StreamComplete(grpc::CallbackServerContext* context,
                                                             const grpc::ByteBuffer* request) override;
  grpc::ServerUnaryReactor* Chat(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                 grpc::ByteBuffer* response) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* StreamChat(grpc::CallbackServerContext* context,
                                                         const grpc::ByteBuffer* request) override;
  grpc::ServerUnaryReactor* CancelRequest(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                          grpc::ByteBuffer* response) override;

 private:
  // Begins the call of a Request; that of a stream has the same bytes as that of a unary call.
  template <class Request, class Reactor>
  Reactor* Begin(grpc::CallbackServerContext* context, const grpc::ByteBuffer* bytes,
                 const std::shared_ptr<Reactor>& reactor);

  FrontDesk& desk_;
  Calls& calls_;
};

}  // namespace sluice
