// How an answer is printed: as text while it comes, as one JSON object, or event by event.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "client/cli/generate_options.h"
#include "client/cpp/client.h"
#include "proto/answer.h"

namespace sluice::cli {

// The object of `--json`: text, token_ids, finish_reason, usage, timings; with several choices `choices` instead of the
// first three. logprobs, stop_string and stop_token_id stand beside the text where they exist. The seed, of 64 bits, is
// a string: JSON's readers commonly round numbers above 2^53.
std::string ToJson(const Answer& answer);

// "12 prompt tokens at 1500.0 tok/s, TTFT 8 ms, 64 tokens at 410.2 tok/s, 163 ms in all"; a rate that is not known is
// left out.
std::string StatsLine(const Answer& answer);

// FINISH_REASON_STOP_SEQUENCE -> "stop_sequence".
std::string FinishReasonName(v1::FinishReason reason);

using StreamStarter = std::function<std::unique_ptr<client::Stream>(client::StreamHandler)>;

struct StreamResult {
  int code = 0;         // exit code
  absl::Status status;  // of the call
  Answer answer;        // what came
};

// Runs one stream to its end and prints it as `flags` say, all on the calling thread. `start` opens the stream with the
// handler it is given. SIGINT cancels the stream, as does a stdout that cannot be written.
StreamResult RunStream(const StreamStarter& start, const GenerateFlags& flags);

}  // namespace sluice::cli
