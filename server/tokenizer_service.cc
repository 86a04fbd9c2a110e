#include "server/tokenizer_service.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "server/answer_reactor.h"
#include "server/calls/convert.h"
#include "server/calls/prompt.h"
#include "server/calls/status.h"
#include "server/request_message.h"

namespace sluice {
namespace {

constexpr int64_t kMaxTokenIds = 8 << 20;
constexpr int kTokensPerPart = 1 << 14;

absl::Status Tokenized(const v1::TokenizeRequest& request, const ServedModel& model, AnswerReactor* answer) {
  const bool add_special = !request.has_add_special_tokens() || request.add_special_tokens();
  const bool parse_special = !request.has_parse_special() || request.parse_special();
  if (model.host().tokenizer == nullptr) return NoTokenizerError();
  SLUICE_RETURN_IF_ERROR(CheckTextSize("text", "", int64_t(request.text().size())));
  const Tokenizer& tokenizer = *model.host().tokenizer;
  auto tokens = tokenizer.Encode(request.text(), {.add_special = add_special, .parse_special = parse_special});
  if (!tokens.ok()) return InvalidField("text", tokens.status().message());
  v1::TokenizeResponse part;
  for (size_t i = 0; i < tokens->size(); ++i) {
    part.add_token_ids(uint32_t((*tokens)[i]));
    part.add_token_bytes(std::string(tokenizer.TokenBytes((*tokens)[i])));
    if (part.token_ids_size() < kTokensPerPart && i + 1 < tokens->size()) continue;
    SLUICE_RETURN_IF_ERROR(answer->Append(part));
    part.Clear();
  }
  return absl::OkStatus();
}

absl::Status Detokenized(const v1::DetokenizeRequest& request, const ServedModel& model, AnswerReactor* answer) {
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
  v1::DetokenizeResponse response;
  response.set_text(tokenizer.Decode(ids, request.skip_special_tokens()));
  return answer->Append(response);
}

absl::Status Rendered(const v1::RenderChatRequest& request, const ServedModel& model, AnswerReactor* answer) {
  if (request.tools_size() > 0) return UnimplementedField("tools");
  ChatPromptOptions options;
  options.continue_final_message = request.continue_final_message();
  options.add_generation_prompt =
      request.has_add_generation_prompt() ? request.add_generation_prompt() : !request.continue_final_message();
  SLUICE_ASSIGN_OR_RETURN(ChatPrompt prompt,
                          EncodeChat(request.messages(), request.chat_template_kwargs_json(), options, model));
  v1::RenderChatResponse response;
  response.set_prompt(std::move(prompt.text));
  response.mutable_token_ids()->Assign(prompt.tokens.begin(), prompt.tokens.end());
  return answer->Append(response);
}

}  // namespace

template <class Request, class Answer>
grpc::ServerUnaryReactor* TokenizerService::Run(grpc::CallbackServerContext* context, const grpc::ByteBuffer* bytes,
                                                grpc::ByteBuffer* out, Answer answer) {
  const auto reactor = AnswerReactor::Create(context, out, &desk_.output,
                                             desk_.options.limits.max_connection_buffer_bytes, &desk_.metrics);
  const auto request = std::make_shared<Request>();
  int64_t memory_bytes = 0;
  absl::Status status = ReadRequest(bytes, desk_.options.limits, request.get(), &memory_bytes);
  const auto model = status.ok() ? desk_.ModelForCall() : status;
  status = model.ok() ? (*model)->CheckName(request->model()) : model.status();
  if (status.ok()) {
    const bool has_template = requires { request->messages(); };
    status = desk_.tokenizer_ingress.Post(
        {.peer = context->peer(), .bytes = memory_bytes, .by_bytes_alone = !has_template},
        [reactor, request, answer, model = *model] {
          // Closing it says why it is over.
          reactor->Close(reactor->Over() ? absl::OkStatus() : answer(*request, *model, reactor.get()));
        });
  }
  if (!status.ok()) reactor->Close(status);
  return reactor.get();
}

grpc::ServerUnaryReactor* TokenizerService::Tokenize(grpc::CallbackServerContext* context,
                                                     const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
  return Run<v1::TokenizeRequest>(context, request, response, Tokenized);
}

grpc::ServerUnaryReactor* TokenizerService::Detokenize(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
  return Run<v1::DetokenizeRequest>(context, request, response, Detokenized);
}

grpc::ServerUnaryReactor* TokenizerService::RenderChat(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
  return Run<v1::RenderChatRequest>(context, request, response, Rendered);
}

}  // namespace sluice
