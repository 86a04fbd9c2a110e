#include "server/tokenizer_service.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "server/convert.h"
#include "server/prompt.h"
#include "server/status.h"
#include "server/unary_call.h"

namespace sluice {
namespace {

constexpr int64_t kMaxTokenIds = 8 << 20;

absl::Status Tokenized(const v1::TokenizeRequest& request, const ServedModel& model, v1::TokenizeResponse* response) {
  const bool add_special = !request.has_add_special_tokens() || request.add_special_tokens();
  const bool parse_special = !request.has_parse_special() || request.parse_special();
  if (model.host().tokenizer == nullptr) return NoTokenizerError();
  SLUICE_RETURN_IF_ERROR(CheckTextSize("text", "", int64_t(request.text().size())));
  const Tokenizer& tokenizer = *model.host().tokenizer;
  auto tokens = tokenizer.Encode(request.text(), {.add_special = add_special, .parse_special = parse_special});
  if (!tokens.ok()) return InvalidField("text", tokens.status().message());
  for (int32_t token : *tokens) {
    response->add_token_ids(uint32_t(token));
    response->add_token_bytes(std::string(tokenizer.TokenBytes(token)));
  }
  return absl::OkStatus();
}

absl::Status Detokenized(const v1::DetokenizeRequest& request, const ServedModel& model,
                         v1::DetokenizeResponse* response) {
  if (model.host().tokenizer == nullptr) return NoTokenizerError();
  if (request.token_ids_size() > kMaxTokenIds) {
    return InvalidField("token_ids",
                        absl::StrCat("found ", request.token_ids_size(), " ids, expected at most ", kMaxTokenIds));
  }
  const Tokenizer& tokenizer = *model.host().tokenizer;
  SLUICE_ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                          ConvertTokenIds("token_ids", request.token_ids(), tokenizer.vocab_size()));
  int64_t num_bytes = 0;
  for (int32_t id : ids) num_bytes += int64_t(tokenizer.TokenBytes(id).size());
  SLUICE_RETURN_IF_ERROR(CheckTextSize("token_ids", "tokens that stand for ", num_bytes));
  response->set_text(tokenizer.Decode(ids, request.skip_special_tokens()));
  return absl::OkStatus();
}

absl::Status Rendered(const v1::RenderChatRequest& request, const ServedModel& model,
                      v1::RenderChatResponse* response) {
  if (request.tools_size() > 0) return UnimplementedField("tools");
  ChatPromptOptions options;
  options.continue_final_message = request.continue_final_message();
  options.add_generation_prompt =
      request.has_add_generation_prompt() ? request.add_generation_prompt() : !request.continue_final_message();
  SLUICE_ASSIGN_OR_RETURN(ChatPrompt prompt,
                          EncodeChat(request.messages(), request.chat_template_kwargs(), options, model));
  response->set_prompt(std::move(prompt.text));
  response->mutable_token_ids()->Assign(prompt.tokens.begin(), prompt.tokens.end());
  return absl::OkStatus();
}

}  // namespace

template <class Request, class Response, class Answer>
grpc::ServerUnaryReactor* TokenizerService::Run(grpc::CallbackServerContext* context, const Request* request,
                                                Response* response, Answer answer) {
  auto model = desk_.ModelForCall();
  if (!model.ok()) return FinishUnary(context, model.status(), &desk_.metrics);
  if (absl::Status status = (*model)->CheckName(request->model()); !status.ok()) {
    return FinishUnary(context, status, &desk_.metrics);
  }
  // The default reactor keeps request and response until Finish, also when the client has left.
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const absl::Status posted = desk_.tokenizer_ingress.Post(
      int64_t(request->ByteSizeLong()), [this, context, request, response, reactor, answer, model = *model] {
        const absl::Status status =
            context->IsCancelled()
                ? CallError(absl::StatusCode::kCancelled, kReasonCancelled, "the client has left")
                : answer(*request, *model, response);
        FinishUnary(context, reactor, status, &desk_.metrics);
      });
  if (!posted.ok()) FinishUnary(context, reactor, posted, &desk_.metrics);
  return reactor;
}

grpc::ServerUnaryReactor* TokenizerService::Tokenize(grpc::CallbackServerContext* context,
                                                     const v1::TokenizeRequest* request,
                                                     v1::TokenizeResponse* response) {
  return Run(context, request, response, Tokenized);
}

grpc::ServerUnaryReactor* TokenizerService::Detokenize(grpc::CallbackServerContext* context,
                                                       const v1::DetokenizeRequest* request,
                                                       v1::DetokenizeResponse* response) {
  return Run(context, request, response, Detokenized);
}

grpc::ServerUnaryReactor* TokenizerService::RenderChat(grpc::CallbackServerContext* context,
                                                       const v1::RenderChatRequest* request,
                                                       v1::RenderChatResponse* response) {
  return Run(context, request, response, Rendered);
}

}  // namespace sluice
