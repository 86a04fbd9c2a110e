#include "client/cpp/generation.h"

namespace sluice::client {

v1::Choice& GenerationBuilder::ChoiceAt(uint32_t index) {
  v1::Choice& choice = choices_[index];
  choice.set_index(index);
  return choice;
}

void GenerationBuilder::Add(const v1::Started& event) { generation_.started = event; }

void GenerationBuilder::Add(const v1::Delta& event) {
  v1::Choice& choice = ChoiceAt(event.index());
  choice.mutable_text()->append(event.text());
  choice.mutable_token_ids()->MergeFrom(event.token_ids());
  choice.mutable_logprobs()->MergeFrom(event.logprobs());
  generation_.prompt_logprobs.insert(generation_.prompt_logprobs.end(), event.prompt_logprobs().begin(),
                                     event.prompt_logprobs().end());
}

void GenerationBuilder::Add(const v1::ChoiceFinished& event) {
  v1::Choice& choice = ChoiceAt(event.index());
  choice.set_finish_reason(event.finish_reason());
  switch (event.matched_stop_case()) {
    case v1::ChoiceFinished::kStopString:
      choice.set_stop_string(event.stop_string());
      break;
    case v1::ChoiceFinished::kStopTokenId:
      choice.set_stop_token_id(event.stop_token_id());
      break;
    case v1::ChoiceFinished::MATCHED_STOP_NOT_SET:
      break;
  }
}

void GenerationBuilder::Add(const v1::Completed& event) {
  generation_.usage = event.usage();
  generation_.timings = event.timings();
}

Generation GenerationBuilder::Take() && {
  for (auto& [index, choice] : choices_) generation_.choices.push_back(std::move(choice));
  return std::move(generation_);
}

namespace {

template <class Response>
Generation Convert(const Response& response) {
  Generation generation;
  v1::Started& started = generation.started;
  started.set_request_id(response.request_id());
  started.set_server_request_id(response.server_request_id());
  started.set_model(response.model());
  *started.mutable_create_time() = response.create_time();
  started.set_seed(response.seed());
  started.set_prompt_tokens(response.usage().prompt_tokens());
  started.set_cached_tokens(response.usage().cached_tokens());
  *started.mutable_metadata() = response.metadata();
  generation.choices.assign(response.choices().begin(), response.choices().end());
  generation.prompt_logprobs.assign(response.prompt_logprobs().begin(), response.prompt_logprobs().end());
  generation.usage = response.usage();
  generation.timings = response.timings();
  return generation;
}

}  // namespace

Generation FromResponse(const v1::CompleteResponse& response) { return Convert(response); }
Generation FromResponse(const v1::ChatResponse& response) { return Convert(response); }

}  // namespace sluice::client
