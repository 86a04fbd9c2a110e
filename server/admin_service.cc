#include "server/admin_service.h"

#include "absl/strings/str_cat.h"
#include "engine/base/log.h"
#include "server/model_state.h"
#include "server/options.h"
#include "server/unary_call.h"

namespace sluice {

void AdminService::Describe(v1::GetServerInfoResponse* response) const {
  response->set_version(Version());
  response->mutable_start_time()->set_seconds(desk_.start_time_ns / 1000000000);
  response->mutable_start_time()->set_nanos(int32_t(desk_.start_time_ns % 1000000000));
  for (const std::string& name : desk_.options.model.names) response->add_models(name);
  response->set_max_logprobs(desk_.options.limits.max_logprobs);
  if (const ServedModel* model = desk_.model.load(); model != nullptr) {
    const ModelHost& host = model->host();
    response->set_device(host.device);
    response->set_threads(uint32_t(host.num_threads));
    response->set_max_model_len(uint32_t(host.engine.max_model_len));
    response->set_block_size(uint32_t(host.engine.block_size));
    response->set_kv_blocks(uint32_t(host.engine.num_blocks));
    response->set_kv_bytes(host.kv_bytes);
    response->set_max_num_seqs(uint32_t(host.engine.max_num_seqs));
    response->set_max_num_batched_tokens(uint32_t(host.engine.max_num_batched_tokens));
    response->set_max_queued_requests(uint32_t(host.engine.max_queued_requests));
    response->set_max_queued_tokens(uint64_t(host.engine.max_queued_tokens));
    response->set_max_queue_seconds(uint32_t(host.engine.max_queue_seconds));
  }
}

void AdminService::Load(v1::GetLoadResponse* response) const {
  if (const ServedModel* model = desk_.model.load(); model != nullptr) {
    const EngineStats stats = model->engine().Stats();
    response->set_running(uint32_t(stats.num_running));
    response->set_waiting(uint32_t(stats.num_waiting));
    response->set_waiting_tokens(uint64_t(stats.num_waiting_tokens));
    response->set_kv_blocks_live(uint32_t(stats.kv_blocks_live));
    response->set_kv_blocks_cached(uint32_t(stats.kv_blocks_cached));
    response->set_kv_blocks_free(uint32_t(stats.kv_blocks_free));
    response->set_kv_blocks_total(uint32_t(stats.kv_blocks_total));
    response->set_generation_tokens_per_second(model->delivery().GenerationTokensPerSecond());
    response->set_prompt_tokens_per_second(model->delivery().PromptTokensPerSecond());
    response->set_preemptions(uint64_t(stats.num_preemptions));
  }
  const HealthState::Phase phase = desk_.health.phase();
  response->set_draining(phase >= HealthState::Phase::kDraining);
  response->set_state(ModelStateOf(phase));
}

grpc::ServerUnaryReactor* AdminService::GetServerInfo(grpc::CallbackServerContext* context,
                                                      const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
  const auto answer = [this](const v1::GetServerInfoRequest&, v1::GetServerInfoResponse* info) {
    Describe(info);
    return absl::OkStatus();
  };
  return AnswerUnary<v1::GetServerInfoRequest, v1::GetServerInfoResponse>(context, request, response,
                                                                          desk_.options.limits, &desk_.metrics, answer);
}

grpc::ServerUnaryReactor* AdminService::GetLoad(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                                grpc::ByteBuffer* response) {
  const auto answer = [this](const v1::GetLoadRequest&, v1::GetLoadResponse* load) {
    Load(load);
    return absl::OkStatus();
  };
  return AnswerUnary<v1::GetLoadRequest, v1::GetLoadResponse>(context, request, response, desk_.options.limits,
                                                              &desk_.metrics, answer);
}

grpc::ServerUnaryReactor* AdminService::Drain(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                              grpc::ByteBuffer* response) {
  const auto answer = [this](const v1::DrainRequest&, v1::DrainResponse* drained) {
    const bool repeated = desk_.health.phase() >= HealthState::Phase::kDraining;
    begin_drain_();
    if (const ServedModel* model = desk_.model.load(); model != nullptr) {
      drained->set_running(uint32_t(model->engine().Stats().num_running));
    }
    LogInfo(absl::StrCat("AdminService.Drain: ", repeated ? "draining already" : "draining",
                         ", new calls are refused; sequences that still run: ", drained->running()));
    return absl::OkStatus();
  };
  return AnswerUnary<v1::DrainRequest, v1::DrainResponse>(context, request, response, desk_.options.limits,
                                                          &desk_.metrics, answer);
}

}  // namespace sluice
