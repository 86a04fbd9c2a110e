#include "client/cli/generate_options.h"

#include <CLI/CLI.hpp>

#include "client/cli/terminal.h"

namespace sluice::cli {

void GenerateFlags::AddTo(CLI::App& command) {
  command.add_option("--model", model, "Name of the served model (default: the only one)")
      ->envname("SLUICE_MODEL")
      ->check(CheckUtf8);
  command.add_option("--max-tokens", max_tokens, "Largest number of tokens (default: what the context has left)");
  command.add_option("--min-tokens", min_tokens, "No end before so many tokens");
  command.add_option("--temperature", temperature, "0: the most likely token each time");
  command.add_option("--top-p", top_p, "Keep the most likely tokens of this total probability");
  command.add_option("--top-k", top_k, "Keep the k most likely tokens");
  command.add_option("--min-p", min_p, "Drop tokens less likely than this share of the most likely one");
  command.add_option("--repetition-penalty", repetition_penalty, "Above 1 discourages tokens of prompt and output");
  command.add_option("--presence-penalty", presence_penalty, "Subtracted from tokens the output holds");
  command.add_option("--frequency-penalty", frequency_penalty, "Subtracted per time the output holds a token");
  command.add_option("--seed", seed, "The same seed gives the same text")->check(CheckNotNegative);
  command.add_option("-n,--n", n, "Number of choices");
  command
      .add_option("--stop", stop, "Text that ends the answer; \\n, \\t, \\r and \\\\ are understood (may be repeated)")
      ->allow_extra_args(false)
      ->check(CheckUtf8)
      ->transform(Unescape);
  command.add_option("--stop-token-ids", stop_token_ids, "Tokens that end the answer, separated by commas")
      ->delimiter(',');
  command.add_flag("--include-stop-text", include_stop_text, "Keep the stop text");
  command.add_flag("--ignore-eos", ignore_eos, "The model's end tokens do not end the answer");
  command.add_option("--logprobs", logprobs, "Report so many log-probabilities per token (with --json)");
  command.add_option("--prompt-logprobs", prompt_logprobs, "The same for the prompt (with --json)");
  command.add_option("--request-id", request_id, "An id that `sluice cancel` takes")->check(CheckUtf8);
  CLI::Option* one_object = command.add_flag("--json", json, "Print one JSON object at the end");
  command.add_flag("--jsonl", jsonl, "Print each event of the stream as JSON, one per line")->excludes(one_object);
  command.add_flag("--stats,--verbose", stats, "Print tokens and times on stderr at the end");
  command.add_flag("--no-stream", no_stream, "Print the text when it is complete");
}

void GenerateFlags::Fill(v1::GenerateOptions* options) const {
  if (max_tokens) options->set_max_tokens(*max_tokens);
  if (min_tokens) options->set_min_tokens(*min_tokens);
  if (temperature) options->set_temperature(*temperature);
  if (top_p) options->set_top_p(*top_p);
  if (top_k) options->set_top_k(*top_k);
  if (min_p) options->set_min_p(*min_p);
  if (repetition_penalty) options->set_repetition_penalty(*repetition_penalty);
  if (presence_penalty) options->set_presence_penalty(*presence_penalty);
  if (frequency_penalty) options->set_frequency_penalty(*frequency_penalty);
  if (seed) options->set_seed(*seed);
  if (n) options->set_n(*n);
  for (const auto& text : stop) options->add_stop(text);
  for (uint32_t id : stop_token_ids) options->add_stop_token_ids(id);
  options->set_include_stop_text(include_stop_text);
  options->set_ignore_eos(ignore_eos);
  if (logprobs) options->set_logprobs(*logprobs);
  if (prompt_logprobs) options->set_prompt_logprobs(*prompt_logprobs);
  // Beside the ids for --json this is what a progress bar counts.
  options->set_return_token_ids(!live());
}

}  // namespace sluice::cli
