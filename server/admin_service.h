// sluice.v1.AdminService.
#pragma once

#include <functional>

#include "server/calls/front_desk.h"
#include "sluice/v1/admin.grpc.pb.h"

namespace sluice {

// Takes bytes: see request_message.h.
using RawAdminService = v1::AdminService::WithRawCallbackMethod_GetServerInfo<
    v1::AdminService::WithRawCallbackMethod_GetLoad<v1::AdminService::WithRawCallbackMethod_Drain<v1::AdminService::Service>>>;

class AdminService final : public RawAdminService {
 public:
  // `desk` outlives the service. `begin_drain` returns at once.
  AdminService(FrontDesk* desk, std::function<void()> begin_drain)
      : desk_(*desk), begin_drain_(std::move(begin_drain)) {}

  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                          grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* GetLoad(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                    grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                  grpc::ByteBuffer* response) override;

 private:
  void Describe(v1::GetServerInfoResponse* response) const;
  void Load(v1::GetLoadResponse* response) const;

  FrontDesk& desk_;
  const std::function<void()> begin_drain_;
};

}  // namespace sluice
