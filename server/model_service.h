// sluice.v1.ModelService.
#pragma once

#include "server/calls/front_desk.h"
#include "sluice/v1/model.grpc.pb.h"

namespace sluice {

// Takes bytes: see request_message.h.
using RawModelService = v1::ModelService::WithRawCallbackMethod_ListModels<
    v1::ModelService::WithRawCallbackMethod_GetModel<v1::ModelService::Service>>;

class ModelService final : public RawModelService {
 public:
  // `desk` outlives the service.
  explicit ModelService(FrontDesk* desk) : desk_(*desk) {}

  grpc::ServerUnaryReactor* ListModels(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* GetModel(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override;

 private:
  void Describe(v1::Model* model) const;

  FrontDesk& desk_;
};

}  // namespace sluice
