// The flags shared by `complete` and `chat`.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "client/cli/flag_checks.h"
#include "sluice/v1/generation.pb.h"

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
  std::vector<uint32_t> stop_token_ids, allowed_token_ids;
  bool ignore_eos = false, include_stop_text = false;
  std::string request_id;
  bool json = false, jsonl = false, stats = false, no_stream = false;
  bool wrap_words = false;  // where the text goes to a terminal; not a flag

  // Whether the text is printed while it comes.
  bool live() const { return !json && !jsonl && !no_stream && n.value_or(1) == 1; }
  void AddTo(CLI::App& command);
  void Fill(v1::GenerateOptions* options) const;
};

// What each number may be (sluice/v1/generation.proto), by the flag's name with underscores: "top_p".
const std::map<std::string, FlagCheck>& NumberChecks();

}  // namespace sluice::cli
