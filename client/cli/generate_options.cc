#include "client/cli/generate_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <limits>

#include "client/cli/terminal.h"

namespace sluice::cli {
namespace {

// A flag whose value is checked as NumberChecks says.
template <class T>
void AddNumber(CLI::App& command, const std::string& flags, T& value, const std::string& help) {
  std::string name = flags.substr(flags.rfind("--") + 2);
  std::replace(name.begin(), name.end(), '-', '_');
  command.add_option(flags, value, help)->type_name("N")->check(NumberChecks().at(name))->transform(Decimal);
}

}  // namespace

const std::map<std::string, FlagCheck>& NumberChecks() {
  constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();
  constexpr int64_t kMaxUint32 = std::numeric_limits<uint32_t>::max();
  static const auto& checks = *new std::map<std::string, FlagCheck>{
      {"max_tokens", WholeNumber(1, kMaxUint32)},
      {"min_tokens", WholeNumber(0, kMaxUint32)},
      {"temperature", Number(0, 2)},
      {"top_p", NumberAbove(0, 1)},
      {"top_k", WholeNumber(-1, kMaxInt32)},
      {"min_p", Number(0, 1)},
      {"repetition_penalty", Number(1e-6, 1e6)},
      {"presence_penalty", Number(-2, 2)},
      {"frequency_penalty", Number(-2, 2)},
      {"seed", WholeNumber(0, std::numeric_limits<uint64_t>::max())},
      {"n", WholeNumber(1, 16)},
      {"logprobs", WholeNumber(-1, kMaxInt32)},
      {"prompt_logprobs", WholeNumber(-1, kMaxInt32)},
  };
  return checks;
}

void GenerateFlags::AddTo(CLI::App& command) {
  const FlagCheck token_id = WholeNumber(0, std::numeric_limits<uint32_t>::max());
  const char* sampling = "Sampling (for flags not given, the server's defaults apply)";
  command.add_option("--model", model, "Name of the served model (default: the only one)")
      ->envname("SLUICE_MODEL")
      ->type_name("NAME")
      ->check(CheckUtf8);
  AddNumber(command, "--max-tokens", max_tokens, "Generate at most N tokens (default: until the context is full)");
  AddNumber(command, "--min-tokens", min_tokens, "Generate at least N tokens");
  AddNumber(command, "--temperature", temperature,
            "Randomness of sampling, 0 to 2; 0 always takes the most likely token");
  AddNumber(command, "--top-p", top_p, "Sample from the most likely tokens whose probabilities add up to N");
  AddNumber(command, "--top-k", top_k, "Sample from the N most likely tokens (0: all)");
  AddNumber(command, "--min-p", min_p, "Drop tokens less likely than N times the most likely one");
  AddNumber(command, "--repetition-penalty", repetition_penalty,
            "Above 1, make tokens that are in the prompt or the output less likely");
  AddNumber(command, "--presence-penalty", presence_penalty, "Subtract N from the logits of tokens in the output");
  AddNumber(command, "--frequency-penalty", frequency_penalty,
            "Subtract N from a token's logit for each time it is in the output");
  AddNumber(command, "--seed", seed,
            "Make sampling repeatable: the same request with the same seed gives the same text");
  AddNumber(command, "-n,--n", n, "Number of answers to generate, 1 to 16");
  for (CLI::Option* option : command.get_options()) {
    if (option->get_type_name() == "N") option->group(sampling);
  }
  command
      .add_option("--stop", stop,
                  "Stop before this text; \\n, \\t, \\r and \\\\ are escapes. Repeat the flag for more texts")
      ->type_name("TEXT")
      ->allow_extra_args(false)
      ->check(CheckUtf8)
      ->transform(Unescape)
      ->group(sampling);
  const auto add_ids = [&](const char* name, std::vector<uint32_t>* ids, const char* help) {
    command.add_option(name, *ids, help)
        ->type_name("IDS")
        ->delimiter(',')
        ->allow_extra_args(false)
        ->check(token_id)
        ->transform(Decimal)
        ->group(sampling);
  };
  add_ids("--stop-token-ids", &stop_token_ids, "Stop at these token ids, separated by commas");
  add_ids("--allowed-token-ids", &allowed_token_ids, "Generate only these token ids, separated by commas");
  command.add_flag("--include-stop-text", include_stop_text, "Keep the stop text in the output")->group(sampling);
  command.add_flag("--ignore-eos", ignore_eos, "Continue past the model's end-of-sequence tokens")->group(sampling);

  const char* output = "Output";
  command.add_option("--logprobs", logprobs, "Number of most likely tokens to report at each position, with --json")
      ->type_name("N")
      ->check(NumberChecks().at("logprobs"))
      ->transform(Decimal)
      ->group(output);
  command.add_option("--prompt-logprobs", prompt_logprobs, "The same for the tokens of the prompt, with --json")
      ->type_name("N")
      ->check(NumberChecks().at("prompt_logprobs"))
      ->transform(Decimal)
      ->group(output);
  CLI::Option* one_object = command.add_flag("--json", json, "Print one JSON object at the end")->group(output);
  command.add_flag("--jsonl", jsonl, "Print each event of the stream as a line of JSON")
      ->excludes(one_object)
      ->group(output);
  command.add_flag("--no-stream", no_stream, "Print the text only once it is complete")->group(output);
  command.add_flag("--stats,--verbose", stats, "Print token counts and times on stderr at the end")->group(output);
  command.add_option("--request-id", request_id, "Id of the request in its events and in the server's debug log")
      ->type_name("ID")
      ->check(CheckUtf8)
      ->group(output);
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
  for (uint32_t id : allowed_token_ids) options->add_allowed_token_ids(id);
  options->set_include_stop_text(include_stop_text);
  options->set_ignore_eos(ignore_eos);
  if (logprobs) options->set_logprobs(*logprobs);
  if (prompt_logprobs) options->set_prompt_logprobs(*prompt_logprobs);
  // Beside the ids for --json this is what a progress bar counts.
  options->set_return_token_ids(!live());
}

}  // namespace sluice::cli
