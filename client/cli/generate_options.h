// The flags shared by `complete`, `chat` and `bench`, and how an answer is printed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client/cpp/client.h"
#include "client/cpp/generation.h"

namespace CLI {
class App;
}

namespace sluice::cli {

// Unset flags stay unset in the request, so that the server's defaults hold.
struct GenerateFlags {
  std::string model;
  std::optional<uint32_t> max_tokens, min_tokens, n;
  std::optional<float> temperature, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty;
  std::optional<int32_t> top_k, logprobs, prompt_logprobs;
  std::optional<uint64_t> seed;
  std::vector<std::string> stop;
  std::vector<uint32_t> stop_token_ids;
  bool ignore_eos = false, include_stop_text = false;
  std::string request_id;
  bool json = false, stats = false, no_stream = false;

  void AddTo(CLI::App& command);
  void Fill(v1::GenerateOptions* options) const;
};

// The pinned object of `--json`: text, token_ids, finish_reason, usage, timings; with several choices `choices` instead
// of the first three.
std::string ToJson(const client::Generation& generation);

// "12 prompt tokens, TTFT 8 ms, 64 tokens at 410.2 tok/s".
std::string StatsLine(const client::Generation& generation);

// FINISH_REASON_STOP_SEQUENCE -> "stop_sequence".
std::string FinishReasonName(v1::FinishReason reason);

// Runs one stream to its end while printing choice 0 (or, with several choices, all of them at the end); SIGINT cancels
// it. `start` opens the stream with the handler it is given. Returns the exit code; *generation holds what came.
int RunStream(const std::function<std::unique_ptr<client::Stream>(client::StreamHandler)>& start,
              const GenerateFlags& flags, client::Generation* generation);

}  // namespace sluice::cli
