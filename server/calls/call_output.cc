#include "server/calls/call_output.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/check.h"
#include "server/calls/status.h"
#include "server/metrics.h"

namespace sluice {
namespace {

// Below what clients accept as one message by default (4 MiB), with room for one more entry.
constexpr size_t kMaxDeltaBytes = 1 << 20;

double Seconds(int64_t from_ns, int64_t to_ns) { return double(std::max<int64_t>(0, to_ns - from_ns)) * 1e-9; }

int64_t Earlier(int64_t a, int64_t b) { return a == 0 ? b : b == 0 ? a : std::min(a, b); }

v1::FinishReason ReasonToProto(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone:
      break;
    case FinishReason::kStop:
      return v1::FINISH_REASON_STOP;
    case FinishReason::kStopSequence:
      return v1::FINISH_REASON_STOP_SEQUENCE;
    case FinishReason::kLength:
      return v1::FINISH_REASON_LENGTH;
    case FinishReason::kCancelled:
      return v1::FINISH_REASON_CANCELLED;
    case FinishReason::kDeadline:
      return v1::FINISH_REASON_DEADLINE;
    case FinishReason::kError:
      return v1::FINISH_REASON_ERROR;
  }
  return v1::FINISH_REASON_UNSPECIFIED;
}

}  // namespace

CallOutput::CallOutput(const Generation& generation, const v1::Started& started, int64_t arrival_ns,
                       const Tokenizer* tokenizer, ReplySink* reply, Metrics* metrics)
    : generation_(generation),
      started_event_(started),
      arrival_ns_(arrival_ns),
      tokenizer_(tokenizer),
      reply_(reply),
      metrics_(metrics) {
  std::unique_ptr<Detokenizer> primed;
  if (tokenizer != nullptr) {
    primed = std::make_unique<Detokenizer>(tokenizer);
    primed->Prime(generation.prompt_tokens);
  }
  choices_.resize(size_t(generation.num_choices));
  for (Choice& choice : choices_) {
    if (primed != nullptr) choice.detokenizer = std::make_unique<Detokenizer>(*primed);
    choice.stop_matcher = generation.stop_matcher;
  }
  num_prompt_tokens_ = int32_t(generation.prompt_tokens.size());
}

CallOutput::Progress CallOutput::Take(int index, SequenceOutput output, int64_t now_ns) {
  Choice& choice = choices_[size_t(index)];
  if (choice.finish_reason != FinishReason::kNone) return {};

  timings_.arrival_ns = Earlier(timings_.arrival_ns, output.timings.arrival_ns);
  timings_.first_scheduled_ns = Earlier(timings_.first_scheduled_ns, output.timings.first_scheduled_ns);
  timings_.first_token_ns = Earlier(timings_.first_token_ns, output.timings.first_token_ns);
  // A choice that finds what another one of this call has computed spares the call nothing that a single choice had not.
  if (output.timings.first_scheduled_ns != 0) {
    num_cached_tokens_ = std::min(num_cached_tokens_.value_or(INT32_MAX), output.num_cached_tokens);
  }
  reply_->BeginStep();
  // An output may be complete without a token.
  const bool is_complete = output.finish_reason == FinishReason::kStop;
  if (!started_ && !(output.tokens.empty() && output.prompt_logprobs.empty() && !is_complete)) Start(output);

  v1::Delta delta;
  int stop_index = -1;
  if (!output.tokens.empty()) {
    ObserveLatency(choice, int(output.tokens.size()), now_ns);
    choice.last_token_ns = last_token_ns_ = now_ns;
  }
  const bool stopped = AppendTokens(output, &choice, &delta, &stop_index);
  Progress progress;
  if (stopped) {
    choice.finish_reason = FinishReason::kStopSequence;
  } else if (output.finish_reason != FinishReason::kNone) {
    choice.finish_reason = output.finish_reason;
    progress.error = output.error;
    if (error_.ok()) error_ = output.error;
  }
  SendDelta(index, std::move(delta), std::move(output.prompt_logprobs));
  if (choice.finish_reason == FinishReason::kNone) return progress;

  timings_.finish_ns = now_ns;
  if (started_) SendFinished(index, choice, output, stop_index);
  ++num_ended_;
  progress.cancel_sequence = output.finish_reason == FinishReason::kNone;
  progress.ended = num_ended_ == int(choices_.size());
  return progress;
}

void CallOutput::Start(const SequenceOutput& output) {
  started_ = true;
  AnswerEvent event;
  v1::Started& started = *event.mutable_started();
  started = started_event_;
  started.set_seed(generation_.sampling.seed);
  started.set_prompt_tokens(uint32_t(num_prompt_tokens_));
  started.set_cached_tokens(uint32_t(output.num_cached_tokens));
  reply_->Send(std::move(event));
}

bool CallOutput::AppendTokens(const SequenceOutput& output, Choice* choice, v1::Delta* delta, int* stop_index) const {
  const bool ends = output.finish_reason != FinishReason::kNone;
  for (size_t i = 0; i < output.tokens.size(); ++i) {
    const int32_t token = output.tokens[i];
    ++choice->num_tokens;
    if (generation_.return_token_ids) delta->add_token_ids(uint32_t(token));
    if (i < output.logprobs.size()) *delta->add_logprobs() = Position(output.logprobs[i]);
    if (choice->detokenizer == nullptr) continue;
    const bool is_stop_token = ends && i + 1 == output.tokens.size() && token == output.stop_token;
    if (is_stop_token && (!generation_.include_stop_text || tokenizer_->IsSpecial(token))) continue;
    delta->mutable_text()->append(Push(choice->detokenizer->Push(token), choice, stop_index));
    if (*stop_index >= 0) return true;
  }
  if (ends && choice->detokenizer != nullptr) {
    delta->mutable_text()->append(Push(choice->detokenizer->Flush(), choice, stop_index));
    if (*stop_index >= 0) return true;
    delta->mutable_text()->append(choice->stop_matcher.Flush());
    // A special token is no text, but where the request names it and asks for it.
    const bool by_request = output.finish_reason == FinishReason::kStopSequence && generation_.include_stop_text;
    if (by_request && tokenizer_->IsSpecial(output.stop_token)) {
      delta->mutable_text()->append(std::string(tokenizer_->TokenBytes(output.stop_token)));
    }
  }
  return false;
}

std::string CallOutput::Push(const std::string& text, Choice* choice, int* stop_index) const {
  // min_tokens delays stop strings as it delays stop tokens: what counts is where they end.
  const bool may_stop = choice->num_tokens > generation_.sampling.min_tokens;
  StopMatcher::Result result = choice->stop_matcher.Push(text, may_stop);
  *stop_index = result.stop_index;
  return std::move(result.text);
}

void CallOutput::ObserveLatency(const Choice& choice, int num_new_tokens, int64_t now_ns) {
  if (last_token_ns_ == 0) metrics_->Observe(started_event_.model(), FirstToken{Seconds(arrival_ns_, now_ns)});
  if (choice.last_token_ns == 0) {
    --num_new_tokens;
    if (num_new_tokens > 0) metrics_->Observe(started_event_.model(), LaterTokens{0, num_new_tokens});
  } else {
    metrics_->Observe(started_event_.model(),
                      LaterTokens{Seconds(choice.last_token_ns, now_ns) / num_new_tokens, num_new_tokens});
  }
}

void CallOutput::SendDelta(int index, v1::Delta delta, std::vector<TokenLogprobs> prompt_logprobs) {
  num_completion_tokens_ = 0;
  for (const Choice& choice : choices_) num_completion_tokens_ += choice.num_tokens;
  if (!started_) return;
  // Long lists of prompt tokens go out in portions that every client accepts.
  size_t bytes = 0;
  AnswerEvent portion;
  portion.mutable_delta()->set_index(uint32_t(index));
  for (const TokenLogprobs& entry : prompt_logprobs) {
    v1::PositionLogprobs* added = portion.mutable_delta()->add_prompt_logprobs();
    *added = Position(entry);
    bytes += added->ByteSizeLong();
    if (bytes < kMaxDeltaBytes) continue;
    reply_->Send(std::exchange(portion, AnswerEvent()));
    portion.mutable_delta()->set_index(uint32_t(index));
    bytes = 0;
  }
  delta.set_index(uint32_t(index));
  delta.mutable_prompt_logprobs()->Swap(portion.mutable_delta()->mutable_prompt_logprobs());
  const bool empty =
      delta.text().empty() && delta.token_ids().empty() && delta.logprobs().empty() && delta.prompt_logprobs().empty();
  if (empty) return;
  *portion.mutable_delta() = std::move(delta);
  reply_->Send(std::move(portion));
}

void CallOutput::SendFinished(int index, const Choice& choice, const SequenceOutput& output, int stop_index) {
  AnswerEvent event;
  v1::ChoiceFinished& finished = *event.mutable_choice_finished();
  finished.set_index(uint32_t(index));
  finished.set_finish_reason(ReasonToProto(choice.finish_reason));
  if (stop_index >= 0) {
    finished.set_stop_string(generation_.stops[size_t(stop_index)]);
  } else if (output.stop_token >= 0) {
    finished.set_stop_token_id(uint32_t(output.stop_token));
  }
  reply_->Send(std::move(event));
}

v1::PositionLogprobs CallOutput::Position(const TokenLogprobs& logprobs) const {
  const auto fill = [this](const TokenLogprob& from, v1::TokenLogprob* to) {
    to->set_token_id(uint32_t(from.token));
    to->set_logprob(from.logprob);
    if (tokenizer_ != nullptr) to->set_token_bytes(std::string(tokenizer_->TokenBytes(from.token)));
  };
  v1::PositionLogprobs position;
  fill(logprobs.chosen, position.mutable_chosen());
  position.set_rank(uint32_t(logprobs.rank));
  position.mutable_top()->Reserve(int(logprobs.top.size()));
  for (const TokenLogprob& entry : logprobs.top) fill(entry, position.add_top());
  return position;
}

absl::Status CallOutput::Outcome(const absl::Status& stopped) const {
  if (!stopped.ok()) return stopped;
  if (!error_.ok()) return error_;
  for (const Choice& choice : choices_) {
    if (choice.finish_reason == FinishReason::kDeadline) {
      return CallError(absl::StatusCode::kDeadlineExceeded, kReasonDeadline, "the call's deadline has passed");
    }
    // Nobody asked for it: the engine was stopped.
    if (choice.finish_reason == FinishReason::kCancelled) {
      return CallError(absl::StatusCode::kUnavailable, kReasonStopped, "the server is shutting down");
    }
  }
  return absl::OkStatus();
}

absl::Status CallOutput::Complete(const absl::Status& stopped) {
  SLUICE_CHECK(num_ended_ == int(choices_.size()));
  const absl::Status outcome = Outcome(stopped);

  EndedCall ended{OutcomeOf(outcome)};
  if (started_ && ended.outcome == CallOutcome::kRejected) ended.outcome = CallOutcome::kError;
  if (outcome.ok()) {
    const auto by_length = [](const Choice& choice) { return choice.finish_reason == FinishReason::kLength; };
    if (std::any_of(choices_.begin(), choices_.end(), by_length)) ended.outcome = CallOutcome::kLength;
  }
  metrics_->Observe(started_event_.model(), ended);
  FinishedCall finished;
  finished.num_prompt_tokens = num_prompt_tokens_;
  finished.num_cached_tokens = num_cached_tokens_.value_or(0);
  finished.num_generation_tokens = num_completion_tokens_;
  finished.max_tokens = generation_.sampling.max_tokens;
  finished.arrival_ns = arrival_ns_;
  finished.timings = timings_;
  finished.last_token_ns = last_token_ns_;
  finished.num_choices = int32_t(choices_.size());
  metrics_->Observe(started_event_.model(), finished);

  if (started_) {
    AnswerEvent event;
    v1::Completed& completed = *event.mutable_completed();
    completed.mutable_usage()->set_prompt_tokens(uint32_t(num_prompt_tokens_));
    completed.mutable_usage()->set_completion_tokens(uint32_t(num_completion_tokens_));
    completed.mutable_usage()->set_cached_tokens(uint32_t(num_cached_tokens_.value_or(0)));
    v1::Timings* timings = completed.mutable_timings();
    if (timings_.first_scheduled_ns != 0) {
      timings->set_queue_ms(1e3 * Seconds(timings_.arrival_ns, timings_.first_scheduled_ns));
    }
    if (timings_.first_token_ns != 0) {
      timings->set_prefill_ms(1e3 * Seconds(timings_.first_scheduled_ns, timings_.first_token_ns));
      timings->set_decode_ms(1e3 * Seconds(timings_.first_token_ns, last_token_ns_));
      timings->set_ttft_ms(1e3 * Seconds(arrival_ns_, timings_.first_token_ns));
    }
    reply_->Send(std::move(event));
  }
  if (outcome.ok()) return outcome;
  return WithMetadata(outcome, {{"completion_tokens", absl::StrCat(num_completion_tokens_)}});
}

}  // namespace sluice
