// sluice.v1.ModelService.
#pragma once

#include "server/front_desk.h"
#include "sluice/v1/model.grpc.pb.h"

namespace sluice {

class ModelService final : public v1::ModelService::CallbackService {
 public:
  // `desk` outlives the service.
  explicit ModelService(FrontDesk* desk) : desk_(*desk) {}

  grpc::ServerUnaryReactor* ListModels(grpc::CallbackServerContext* context, const v1::ListModelsRequest* request,
                                       v1::ListModelsResponse* response) override;
  grpc::ServerUnaryReactor* GetModel(grpc::CallbackServerContext* context, const v1::GetModelRequest* request,
                                     v1::GetModelResponse* response) override;

 private:
  void Describe(v1::Model* model) const;

  FrontDesk& desk_;
};

}  // namespace sluice
