#include "client/cli/generate_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <functional>
#include <iostream>
#include <mutex>
#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "client/cli/terminal.h"

namespace sluice::cli {
namespace {

using Json = nlohmann::ordered_json;

Json LogprobsJson(const google::protobuf::RepeatedPtrField<v1::PositionLogprobs>& positions) {
  Json result = Json::array();
  for (const auto& position : positions) {
    Json top = Json::array();
    for (const auto& token : position.top())
      top.push_back({{"token_id", token.token_id()}, {"logprob", token.logprob()}});
    result.push_back({{"token_id", position.chosen().token_id()},
                      {"logprob", position.chosen().logprob()},
                      {"rank", position.rank()},
                      {"top", std::move(top)}});
  }
  return result;
}

Json ChoiceJson(const v1::Choice& choice) {
  Json result = {{"text", choice.text()},
                 {"token_ids", std::vector<uint32_t>(choice.token_ids().begin(), choice.token_ids().end())},
                 {"finish_reason", FinishReasonName(choice.finish_reason())}};
  if (choice.matched_stop_case() == v1::Choice::kStopString) result["stop_string"] = choice.stop_string();
  if (choice.matched_stop_case() == v1::Choice::kStopTokenId) result["stop_token_id"] = choice.stop_token_id();
  if (choice.logprobs_size() > 0) result["logprobs"] = LogprobsJson(choice.logprobs());
  return result;
}

}  // namespace

void GenerateFlags::AddTo(CLI::App& command) {
  command.add_option("--model", model, "Name of the served model (default: the only one)");
  command.add_option("--max-tokens", max_tokens, "Largest number of tokens (default: what the context has left)");
  command.add_option("--min-tokens", min_tokens, "No end before so many tokens");
  command.add_option("--temperature", temperature, "0: the most likely token each time");
  command.add_option("--top-p", top_p, "Keep the most likely tokens of this total probability");
  command.add_option("--top-k", top_k, "Keep the k most likely tokens");
  command.add_option("--min-p", min_p, "Drop tokens less likely than this share of the most likely one");
  command.add_option("--repetition-penalty", repetition_penalty, "Above 1 discourages tokens of prompt and output");
  command.add_option("--presence-penalty", presence_penalty, "Subtracted from tokens the output holds");
  command.add_option("--frequency-penalty", frequency_penalty, "Subtracted per time the output holds a token");
  command.add_option("--seed", seed, "The same seed gives the same text");
  command.add_option("-n,--n", n, "Number of choices");
  command.add_option("--stop", stop, "Text that ends the answer (may be repeated)")->allow_extra_args(false);
  command.add_option("--stop-token-ids", stop_token_ids, "Tokens that end the answer, separated by commas")
      ->delimiter(',');
  command.add_flag("--include-stop-text", include_stop_text, "Keep the stop text");
  command.add_flag("--ignore-eos", ignore_eos, "The model's end tokens do not end the answer");
  command.add_option("--logprobs", logprobs, "Report so many log-probabilities per token (with --json)");
  command.add_option("--prompt-logprobs", prompt_logprobs, "The same for the prompt (with --json)");
  command.add_option("--request-id", request_id, "An id that `sluice cancel` takes");
  command.add_flag("--json", json, "Print one JSON object at the end");
  command.add_flag("--stats", stats, "Print tokens and times on stderr at the end");
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
  options->set_return_token_ids(json);
}

std::string FinishReasonName(v1::FinishReason reason) {
  const std::string kPrefix = "FINISH_REASON_";
  std::string name = v1::FinishReason_Name(reason);
  if (name.rfind(kPrefix, 0) == 0) name.erase(0, kPrefix.size());
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return char(std::tolower(c)); });
  return name;
}

std::string ToJson(const client::Generation& generation) {
  Json result;
  if (generation.choices.size() == 1) {
    result = ChoiceJson(generation.choices[0]);
  } else {
    result["choices"] = Json::array();
    for (const auto& choice : generation.choices) result["choices"].push_back(ChoiceJson(choice));
  }
  if (!generation.prompt_logprobs.empty()) {
    google::protobuf::RepeatedPtrField<v1::PositionLogprobs> positions(generation.prompt_logprobs.begin(),
                                                                       generation.prompt_logprobs.end());
    result["prompt_logprobs"] = LogprobsJson(positions);
  }
  result["model"] = generation.started.model();
  result["request_id"] = generation.started.request_id();
  result["seed"] = generation.started.seed();
  result["usage"] = {{"prompt_tokens", generation.usage.prompt_tokens()},
                     {"completion_tokens", generation.usage.completion_tokens()},
                     {"cached_tokens", generation.usage.cached_tokens()}};
  result["timings"] = {{"queue_ms", generation.timings.queue_ms()},
                       {"prefill_ms", generation.timings.prefill_ms()},
                       {"decode_ms", generation.timings.decode_ms()},
                       {"ttft_ms", generation.timings.ttft_ms()}};
  // A text may hold U+FFFD but never broken UTF-8; `replace` keeps a surprise from ending the program.
  return result.dump(2, ' ', false, Json::error_handler_t::replace);
}

std::string StatsLine(const client::Generation& generation) {
  const auto& usage = generation.usage;
  const auto& timings = generation.timings;
  std::string line = absl::StrFormat("%d prompt tokens, TTFT %.0f ms, %d tokens", usage.prompt_tokens(),
                                     timings.ttft_ms(), usage.completion_tokens());
  if (usage.completion_tokens() > 1 && timings.decode_ms() > 0) {
    const double rate = (usage.completion_tokens() - double(generation.choices.size())) / timings.decode_ms() * 1000;
    line += absl::StrFormat(" at %.1f tok/s", rate);
  }
  return line;
}

int RunStream(const std::function<std::unique_ptr<client::Stream>(client::StreamHandler)>& start,
              const GenerateFlags& flags, client::Generation* generation) {
  const bool live = !flags.json && !flags.no_stream && flags.n.value_or(1) == 1;
  client::GenerationBuilder builder;  // touched by the stream's thread until Wait returns
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;  // guarded by mutex
  client::StreamHandler handler;
  handler.on_started = [&](const v1::Started& event) { builder.Add(event); };
  handler.on_delta = [&](const v1::Delta& event) {
    builder.Add(event);
    if (live && !event.text().empty()) {
      std::fwrite(event.text().data(), 1, event.text().size(), stdout);
      std::fflush(stdout);
    }
  };
  handler.on_choice_finished = [&](const v1::ChoiceFinished& event) { builder.Add(event); };
  handler.on_completed = [&](const v1::Completed& event) { builder.Add(event); };
  handler.on_done = [&](const absl::Status&) {
    const std::lock_guard<std::mutex> lock(mutex);
    done = true;
    changed.notify_all();
  };

  InterruptScope interrupts;
  bool cancelled = false;
  absl::Status status;
  {
    const std::unique_ptr<client::Stream> stream = start(std::move(handler));
    // A signal handler may only set a flag, so the flag is looked at 50 times a second.
    std::unique_lock<std::mutex> lock(mutex);
    while (!changed.wait_for(lock, std::chrono::milliseconds(20), [&] { return done; })) {
      if (!InterruptScope::Interrupted() || cancelled) continue;
      cancelled = true;
      stream->Cancel();
    }
    lock.unlock();
    status = stream->Wait();
  }
  *generation = std::move(builder).Take();
  if (live && !generation->choices.empty()) std::fputs("\n", stdout);
  std::fflush(stdout);
  if (cancelled) return kExitInterrupted;
  if (!status.ok()) return Report(status);
  if (flags.json) {
    std::cout << ToJson(*generation) << std::endl;
  } else if (!live) {
    for (const auto& choice : generation->choices) std::cout << choice.text() << "\n";
    std::cout.flush();
  }
  if (flags.stats) std::cerr << Dim(StatsLine(*generation)) << std::endl;
  return kExitOk;
}

}  // namespace sluice::cli
