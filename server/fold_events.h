// The events of a stream folded into the answer of the unary call: what a stream says and what a unary call says are
// the same by construction.
#pragma once

#include <utility>

#include "sluice/v1/generation.pb.h"

namespace sluice {

template <class Response>
v1::Choice* ChoiceAt(uint32_t index, Response* response) {
  while (uint32_t(response->choices_size()) <= index) {
    response->add_choices()->set_index(uint32_t(response->choices_size()) - 1);
  }
  return response->mutable_choices(int(index));
}

template <class Response>
void FoldEvent(v1::Started started, Response* response) {
  response->set_request_id(std::move(*started.mutable_request_id()));
  response->set_server_request_id(std::move(*started.mutable_server_request_id()));
  response->set_model(std::move(*started.mutable_model()));
  *response->mutable_create_time() = started.create_time();
  response->set_seed(started.seed());
  *response->mutable_metadata() = std::move(*started.mutable_metadata());
}

template <class Response>
void FoldEvent(v1::Delta delta, Response* response) {
  v1::Choice* choice = ChoiceAt(delta.index(), response);
  choice->mutable_text()->append(delta.text());
  choice->mutable_token_ids()->MergeFrom(delta.token_ids());
  for (auto& entry : *delta.mutable_logprobs()) *choice->add_logprobs() = std::move(entry);
  for (auto& entry : *delta.mutable_prompt_logprobs()) *response->add_prompt_logprobs() = std::move(entry);
}

template <class Response>
void FoldEvent(v1::ChoiceFinished finished, Response* response) {
  v1::Choice* choice = ChoiceAt(finished.index(), response);
  choice->set_finish_reason(finished.finish_reason());
  if (finished.has_stop_string()) choice->set_stop_string(finished.stop_string());
  if (finished.has_stop_token_id()) choice->set_stop_token_id(finished.stop_token_id());
}

template <class Response>
void FoldEvent(v1::Completed completed, Response* response) {
  *response->mutable_usage() = completed.usage();
  *response->mutable_timings() = completed.timings();
}

}  // namespace sluice
