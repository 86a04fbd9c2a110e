#include "proto/answer.h"

#include <utility>

namespace sluice {
namespace {

// A new one comes before those of larger index. A server may be anybody's: no index makes more than one choice.
v1::Choice* ChoiceAt(uint32_t index, Answer* answer) {
  auto& choices = *answer->mutable_choices();
  int at = choices.size();
  while (at > 0 && choices[at - 1].index() > index) --at;
  if (at > 0 && choices[at - 1].index() == index) return choices.Mutable(at - 1);
  choices.Add()->set_index(index);
  for (int last = choices.size() - 1; last > at; --last) choices.SwapElements(last, last - 1);
  return choices.Mutable(at);
}

}  // namespace

void Fold(v1::Started started, Answer* answer) {
  answer->set_request_id(std::move(*started.mutable_request_id()));
  answer->set_server_request_id(std::move(*started.mutable_server_request_id()));
  answer->set_model(std::move(*started.mutable_model()));
  *answer->mutable_create_time() = started.create_time();
  answer->set_seed(started.seed());
  answer->mutable_usage()->set_prompt_tokens(started.prompt_tokens());
  answer->mutable_usage()->set_cached_tokens(started.cached_tokens());
  answer->mutable_metadata()->swap(*started.mutable_metadata());
}

void Fold(v1::Delta delta, Answer* answer) {
  v1::Choice* choice = ChoiceAt(delta.index(), answer);
  choice->mutable_text()->append(delta.text());
  choice->mutable_token_ids()->MergeFrom(delta.token_ids());
  for (auto& entry : *delta.mutable_logprobs()) *choice->add_logprobs() = std::move(entry);
  for (auto& entry : *delta.mutable_prompt_logprobs()) *answer->add_prompt_logprobs() = std::move(entry);
}

void Fold(v1::ChoiceFinished finished, Answer* answer) {
  v1::Choice* choice = ChoiceAt(finished.index(), answer);
  choice->set_finish_reason(finished.finish_reason());
  if (finished.has_stop_string()) choice->set_stop_string(finished.stop_string());
  if (finished.has_stop_token_id()) choice->set_stop_token_id(finished.stop_token_id());
}

void Fold(v1::Completed completed, Answer* answer) {
  *answer->mutable_usage() = completed.usage();
  *answer->mutable_timings() = completed.timings();
}

void Fold(AnswerEvent event, Answer* answer) {
  switch (event.event_case()) {
    case AnswerEvent::kStarted:
      return Fold(std::move(*event.mutable_started()), answer);
    case AnswerEvent::kDelta:
      return Fold(std::move(*event.mutable_delta()), answer);
    case AnswerEvent::kChoiceFinished:
      return Fold(std::move(*event.mutable_choice_finished()), answer);
    case AnswerEvent::kCompleted:
      return Fold(std::move(*event.mutable_completed()), answer);
    case AnswerEvent::EVENT_NOT_SET:
      return;
  }
}

}  // namespace sluice
