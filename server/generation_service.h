// sluice.v1.GenerationService. gRPC's threads only set a call up and hand it to ingress; none of them ever waits.
#pragma once

#include <memory>

#include "server/front_desk.h"
#include "server/reply_options.h"
#include "sluice/v1/generation.grpc.pb.h"

namespace sluice {

class GenerationService final : public v1::GenerationService::CallbackService {
 public:
  // `desk` outlives the service.
  explicit GenerationService(FrontDesk* desk) : desk_(*desk) {}

  grpc::ServerUnaryReactor* Complete(grpc::CallbackServerContext* context, const v1::CompleteRequest* request,
                                     v1::CompleteResponse* response) override;
  grpc::ServerWriteReactor<v1::StreamCompleteResponse>* StreamComplete(
      grpc::CallbackServerContext* context, const v1::StreamCompleteRequest* request) override;
  grpc::ServerUnaryReactor* Chat(grpc::CallbackServerContext* context, const v1::ChatRequest* request,
                                 v1::ChatResponse* response) override;
  grpc::ServerWriteReactor<v1::StreamChatResponse>* StreamChat(grpc::CallbackServerContext* context,
                                                               const v1::StreamChatRequest* request) override;
  grpc::ServerUnaryReactor* CancelRequest(grpc::CallbackServerContext* context, const v1::CancelRequestRequest* request,
                                          v1::CancelRequestResponse* response) override;

 private:
  // Makes a Call of a request and passes it to ingress, or closes it.
  template <class Request, class Reactor>
  void Begin(grpc::CallbackServerContext* context, const Request& request, const std::shared_ptr<Reactor>& reactor);

  // On an ingress thread: from the request to the engine's queue.
  template <class Request>
  absl::Status Submit(const Request& request, ServedModel* model, const std::shared_ptr<Call>& call);

  // Ends a call that the engine does not know.
  void Refuse(const std::shared_ptr<Call>& call, const absl::Status& status);
  void OnClientGone(const std::shared_ptr<Call>& call, ClientGone why);

  FrontDesk& desk_;
};

}  // namespace sluice
