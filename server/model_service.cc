#include "server/model_service.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/text/chat_formatter.h"
#include "server/calls/convert.h"
#include "server/calls/status.h"
#include "server/model_state.h"
#include "server/unary_call.h"

namespace sluice {

void ModelService::Describe(v1::Model* model) const {
  const std::vector<std::string>& names = desk_.options.model.names;
  model->set_id(names.front());
  for (size_t i = 1; i < names.size(); ++i) model->add_aliases(names[i]);
  model->set_state(ModelStateOf(desk_.health.phase()));
  const ServedModel* served = desk_.model.load();
  if (served == nullptr) return;
  const ModelHost& host = served->host();
  model->set_architecture(host.architecture);
  model->set_max_model_len(uint32_t(host.engine.max_model_len));
  model->set_context_length(uint32_t(host.context_length));
  model->set_vocab_size(uint32_t(host.engine.vocab_size));
  model->set_weight_type(host.weight_type);
  model->set_activations(host.activations);
  model->set_kv_type(host.kv_type);
  model->set_num_parameters(host.num_parameters);
  for (int32_t id : host.engine.eos_token_ids) model->add_eos_token_ids(uint32_t(id));
  model->add_capabilities(v1::CAPABILITY_COMPLETE);
  model->add_capabilities(v1::CAPABILITY_LOGPROBS);
  if (host.tokenizer != nullptr) {
    model->add_capabilities(v1::CAPABILITY_TEXT);
    if (host.tokenizer->bos_id().has_value()) model->set_bos_token_id(uint32_t(*host.tokenizer->bos_id()));
  }
  model->set_has_chat_template(host.chat_template != nullptr);
  model->set_chat_template_error(host.chat_template_error);
  if (host.chat_template != nullptr) {
    for (const auto& [role, name] : {std::pair(ChatRole::kSystem, v1::ROLE_SYSTEM),
                                     {ChatRole::kDeveloper, v1::ROLE_DEVELOPER},
                                     {ChatRole::kUser, v1::ROLE_USER},
                                     {ChatRole::kAssistant, v1::ROLE_ASSISTANT},
                                     {ChatRole::kTool, v1::ROLE_TOOL}}) {
      if (host.chat_template->Takes(role)) model->add_chat_roles(name);
    }
    for (const std::string& warning : host.chat_template->Warnings()) model->add_chat_template_warnings(warning);
  }
  if (host.chat_template != nullptr && host.tokenizer != nullptr) model->add_capabilities(v1::CAPABILITY_CHAT);
  *model->mutable_sampling_defaults() = ResolvedDefaults(host.defaults);
}

grpc::ServerUnaryReactor* ModelService::ListModels(grpc::CallbackServerContext* context,
                                                   const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
  const auto answer = [this](const v1::ListModelsRequest&, v1::ListModelsResponse* list) {
    Describe(list->add_models());
    return absl::OkStatus();
  };
  return AnswerUnary<v1::ListModelsRequest, v1::ListModelsResponse>(context, request, response, desk_.options.limits,
                                                                    &desk_.metrics, answer);
}

grpc::ServerUnaryReactor* ModelService::GetModel(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                                 grpc::ByteBuffer* response) {
  const auto answer = [this](const v1::GetModelRequest& asked, v1::GetModelResponse* found) {
    SLUICE_RETURN_IF_ERROR(CheckModelName(asked.model(), desk_.options.model.names));
    Describe(found->mutable_model());
    return absl::OkStatus();
  };
  return AnswerUnary<v1::GetModelRequest, v1::GetModelResponse>(context, request, response, desk_.options.limits,
                                                                &desk_.metrics, answer);
}

}  // namespace sluice
