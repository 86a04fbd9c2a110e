// sluice.v1.GenerationService. gRPC's threads only set a call up and hand it to ingress; none of them ever waits.
#pragma once

#include <memory>

#include "server/front_desk.h"
#include "server/reply_options.h"
#include "sluice/v1/generation.grpc.pb.h"

namespace sluice {

// Takes bytes: see request_message.h.
using RawGenerationService = v1::GenerationService::WithRawCallbackMethod_Complete<
    v1::GenerationService::WithRawCallbackMethod_StreamComplete<v1::GenerationService::WithRawCallbackMethod_Chat<
        v1::GenerationService::WithRawCallbackMethod_StreamChat<
            v1::GenerationService::WithRawCallbackMethod_CancelRequest<v1::GenerationService::Service>>>>>;

class GenerationService final : public RawGenerationService {
 public:
  // `desk` outlives the service.
  explicit GenerationService(FrontDesk* desk) : desk_(*desk) {}

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
  // Makes a Call of the bytes of a Request and passes it to ingress, or closes it.
  template <class Request, class Reactor>
  void Begin(grpc::CallbackServerContext* context, const grpc::ByteBuffer* bytes,
             const std::shared_ptr<Reactor>& reactor);

  // On an ingress thread: from the request to the engine's queue.
  template <class Request>
  absl::Status Submit(const Request& request, ServedModel* model, const std::shared_ptr<Call>& call);

  // Ends a call that the engine does not know.
  void Refuse(const std::shared_ptr<Call>& call, const absl::Status& status);
  absl::Status Cancel(const v1::CancelRequestRequest& request, const std::string& peer);
  void OnClientGone(const std::shared_ptr<Call>& call, ClientGone why);

  FrontDesk& desk_;
};

}  // namespace sluice
