// sluice.v1.AdminService.
#pragma once

#include <functional>

#include "server/front_desk.h"
#include "sluice/v1/admin.grpc.pb.h"

namespace sluice {

class AdminService final : public v1::AdminService::CallbackService {
 public:
  // `desk` outlives the service. `begin_drain` returns at once.
  AdminService(FrontDesk* desk, std::function<void()> begin_drain)
      : desk_(*desk), begin_drain_(std::move(begin_drain)) {}

  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context, const v1::GetServerInfoRequest* request,
                                          v1::GetServerInfoResponse* response) override;
  grpc::ServerUnaryReactor* GetLoad(grpc::CallbackServerContext* context, const v1::GetLoadRequest* request,
                                    v1::GetLoadResponse* response) override;
  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context, const v1::DrainRequest* request,
                                  v1::DrainResponse* response) override;

 private:
  FrontDesk& desk_;
  const std::function<void()> begin_drain_;
};

}  // namespace sluice
