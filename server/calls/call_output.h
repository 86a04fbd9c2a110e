// The outputs of one call's sequences made into the events its client sees: text by the detokenizer, stop strings,
// usage and timings. Knows no threads and no engine.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/request.h"
#include "engine/text/detokenizer.h"
#include "engine/text/stop_matcher.h"
#include "server/calls/generation.h"
#include "server/calls/reply_sink.h"

namespace sluice {

class Metrics;

class CallOutput {
 public:
  // `generation` is whole at first; its prompt may go afterwards.
  // `started`: the first event, without what `generation` and the engine say. `arrival_ns` (Clock): of the call.
  // `tokenizer` may be null: no text then. All but `arrival_ns` outlive the object.
  CallOutput(const Generation& generation, const v1::Started& started, int64_t arrival_ns, const Tokenizer* tokenizer,
             ReplySink* reply, Metrics* metrics);

  struct Progress {
    bool cancel_sequence = false;  // a stop string ended the choice: the engine has no more to do for it
    bool ended = false;            // this was the end of the last choice
    absl::Status error;            // why this choice failed; OK if it did not
  };

  // Sends the events that `output` of choice `index` brings. `now_ns` (Clock): when its step ended. Outputs of a choice
  // that has ended are ignored.
  Progress Take(int index, SequenceOutput output, int64_t now_ns);

  // After the end, once: sends `completed` if the stream had begun, counts the call, and returns what the call ends
  // with: `stopped` if that is an error (why the server ended it early), else what the engine says.
  absl::Status Complete(const absl::Status& stopped);

 private:
  struct Choice {
    std::unique_ptr<Detokenizer> detokenizer;  // null without a tokenizer
    StopMatcher stop_matcher;
    int32_t num_tokens = 0;
    int64_t last_token_ns = 0;
    FinishReason finish_reason = FinishReason::kNone;
  };

  void Start(const SequenceOutput& output);
  // Appends text, tokens and log-probabilities to `delta`; true if a stop string was found.
  bool AppendTokens(const SequenceOutput& output, Choice* choice, v1::Delta* delta, int* stop_index) const;
  std::string Push(const std::string& text, Choice* choice, int* stop_index) const;
  void ObserveLatency(const Choice& choice, int num_new_tokens, int64_t now_ns);
  void SendDelta(int index, v1::Delta delta, std::vector<TokenLogprobs> prompt_logprobs);
  void SendFinished(int index, const Choice& choice, const SequenceOutput& output, int stop_index);
  v1::PositionLogprobs Position(const TokenLogprobs& logprobs) const;
  absl::Status Outcome(const absl::Status& stopped) const;

  const Generation& generation_;
  const v1::Started& started_event_;
  const int64_t arrival_ns_;
  const Tokenizer* const tokenizer_;
  ReplySink* const reply_;
  Metrics* const metrics_;

  std::vector<Choice> choices_;
  int num_ended_ = 0;
  bool started_ = false;
  absl::Status error_;  // of the first sequence that failed
  int32_t num_prompt_tokens_ = 0;
  std::optional<int32_t> num_cached_tokens_;  // of the choices that have run the fewest: what no choice had to compute
  int32_t num_completion_tokens_ = 0;
  // Clock; 0: has not happened. Of several choices the first, finish the last.
  RequestTimings timings_;
  int64_t last_token_ns_ = 0;
};

}  // namespace sluice
