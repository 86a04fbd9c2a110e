// sluice bench: a closed loop of so many callers, or an open loop with Poisson arrivals.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <iostream>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cli/bench_stats.h"
#include "client/cli/commands.h"
#include "client/cli/terminal.h"
#include "client/cpp/client.h"

namespace sluice::cli {
namespace {

struct Flags {
  std::string model, prompt_file;
  int64_t requests = 64, warmup = 2;
  int concurrency = 8;
  double rate = 0;
  uint32_t prompt_tokens = 128, max_tokens = 64;
  double temperature = 0;
  uint64_t seed = 1;
  bool json = false, stop_at_eos = false;
};

class Bench {
 public:
  Bench(const Flags& flags, const Globals& globals) : flags_(flags), globals_(globals) {
    // A connection for every 32 callers or so: one HTTP/2 connection would be the bottleneck before the server is.
    const int connections = std::clamp(flags.concurrency / 32 + 1, 1, 8);
    for (int i = 0; i < connections; ++i) {
      client::ClientOptions options;
      options.own_connection = true;
      clients_.push_back(client::Client::Create(globals.server, options));
    }
  }

  absl::Status PreparePrompts() {
    if (!flags_.prompt_file.empty()) {
      std::ifstream in(flags_.prompt_file);
      for (std::string line; std::getline(in, line);) {
        if (!line.empty()) prompts_.push_back(line);
      }
      if (prompts_.empty()) return absl::NotFoundError(absl::StrCat("--prompt-file: no lines in ", flags_.prompt_file));
      return absl::OkStatus();
    }
    auto models = clients_[0]->ListModels();
    if (!models.ok()) return models.status();
    for (const auto& model : models->models()) {
      if (flags_.model.empty() || flags_.model == model.id()) vocab_size_ = model.vocab_size();
    }
    if (vocab_size_ == 0) return absl::NotFoundError(absl::StrCat("the server has no model '", flags_.model, "'"));
    return absl::OkStatus();
  }

  // Runs requests [0, count) and returns their records.
  std::vector<RequestRecord> Run(int64_t count, bool show_progress) {
    std::vector<RequestRecord> records(size_t(count), RequestRecord{});
    std::atomic<int64_t> next{0}, done{0};
    std::vector<std::thread> threads;
    const std::vector<double> times =
        flags_.rate > 0 ? PoissonTimes(count, flags_.rate, flags_.seed) : std::vector<double>();
    const int64_t start = NowNs();
    // An open loop needs a caller for each request that may be under way, which is all of them.
    const int64_t callers = std::min<int64_t>(count, times.empty() ? flags_.concurrency : 4096);
    for (int64_t t = 0; t < callers; ++t) {
      threads.emplace_back([&, t] {
        for (int64_t i; (i = next.fetch_add(1)) < count && !InterruptScope::Interrupted();) {
          if (!times.empty()) SleepUntil(start + int64_t(times[size_t(i)] * 1e9));
          RunOne(*clients_[size_t(t) % clients_.size()], i, &records[size_t(i)]);
          done.fetch_add(1);
        }
      });
    }
    {
      Progress progress("requests", count);
      while (show_progress && done < count && !InterruptScope::Interrupted()) {
        progress.Update(done);
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
    }
    for (auto& thread : threads) thread.join();
    records.resize(size_t(std::min<int64_t>(next, count)));
    records.erase(std::remove_if(records.begin(), records.end(), [](const RequestRecord& r) { return r.sent_ns == 0; }),
                  records.end());
    return records;
  }

 private:
  static void SleepUntil(int64_t when_ns) {
    while (NowNs() < when_ns && !InterruptScope::Interrupted()) {
      std::this_thread::sleep_for(std::chrono::nanoseconds(std::min<int64_t>(when_ns - NowNs(), 20'000'000)));
    }
  }

  v1::StreamCompleteRequest MakeRequest(int64_t i) const {
    v1::StreamCompleteRequest request;
    request.set_model(flags_.model);
    if (!prompts_.empty()) {
      request.set_prompt(prompts_[size_t(i) % prompts_.size()]);
    } else {
      std::mt19937_64 random(flags_.seed * 1'000'003 + uint64_t(i));
      for (uint32_t t = 0; t < flags_.prompt_tokens; ++t)
        request.mutable_prompt_ids()->add_ids(uint32_t(random() % vocab_size_));
    }
    v1::GenerateOptions* options = request.mutable_options();
    options->set_max_tokens(flags_.max_tokens);
    options->set_temperature(float(flags_.temperature));
    options->set_seed(flags_.seed + uint64_t(i));
    options->set_ignore_eos(!flags_.stop_at_eos);
    options->set_return_token_ids(true);
    return request;
  }

  void RunOne(client::Client& client, int64_t i, RequestRecord* record) const {
    const v1::StreamCompleteRequest request = MakeRequest(i);
    client::CallOptions options;
    if (globals_.timeout_s > 0) options.timeout = std::chrono::milliseconds(int64_t(globals_.timeout_s * 1000));
    client::StreamHandler handler;
    handler.on_delta = [&](const v1::Delta& delta) {
      if (delta.token_ids_size() > 0) record->delta_ns.push_back(NowNs());
    };
    handler.on_completed = [&](const v1::Completed& event) {
      record->prompt_tokens = event.usage().prompt_tokens();
      record->completion_tokens = event.usage().completion_tokens();
    };
    handler.on_done = [&](const absl::Status&) { record->done_ns = NowNs(); };
    record->sent_ns = NowNs();
    const absl::Status status = client.StreamComplete(request, std::move(handler), options)->Wait();
    record->ok = status.ok();
    if (!status.ok()) {
      const std::string reason = client::GetErrorDetails(status).reason;
      record->error = absl::StrCat(absl::StatusCodeToString(status.code()), reason.empty() ? "" : " ", reason);
    }
  }

  const Flags& flags_;
  const Globals& globals_;
  std::vector<std::unique_ptr<client::Client>> clients_;
  std::vector<std::string> prompts_;
  uint32_t vocab_size_ = 0;
};

int Run(const Flags& flags, const Globals& globals) {
  InterruptScope interrupts;
  Bench bench(flags, globals);
  if (absl::Status status = bench.PreparePrompts(); !status.ok()) return Report(status);
  if (flags.warmup > 0) {
    for (const RequestRecord& record : bench.Run(flags.warmup, false)) {
      if (record.ok) continue;
      std::cerr << "sluice: a warm-up request failed: " << record.error << std::endl;
    }
  }
  const BenchReport report = MakeReport(bench.Run(flags.requests, true));
  std::cout << (flags.json ? ToJson(report) + "\n" : ToText(report)) << std::flush;
  if (InterruptScope::Interrupted()) return kExitInterrupted;
  return report.failed == 0 ? kExitOk : 1;
}

}  // namespace

Command AddBench(CLI::App& app, const Globals& globals) {
  auto flags = std::make_shared<Flags>();
  CLI::App* command = app.add_subcommand("bench", "Measure a server under load");
  command->add_option("--requests", flags->requests, "Requests to measure")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  command->add_option("--warmup", flags->warmup, "Requests before that")
      ->check(CLI::Range(0, 10'000))
      ->capture_default_str();
  command->add_option("--concurrency", flags->concurrency, "Callers of the closed loop")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command
      ->add_option("--rate", flags->rate, "Requests per second on average, sent whatever the server does (open loop)")
      ->check(CLI::Range(0.001, 1e6));
  command->add_option("--prompt-tokens", flags->prompt_tokens, "Random tokens in each prompt")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  command->add_option("--prompt-file", flags->prompt_file, "Prompts, one per line, instead of random tokens");
  command->add_option("--max-tokens", flags->max_tokens, "Tokens of each answer")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  command->add_flag("--stop-at-eos", flags->stop_at_eos, "Answers may end before --max-tokens");
  command->add_option("--temperature", flags->temperature, "0: greedy")
      ->check(CLI::Range(0.0, 2.0))
      ->capture_default_str();
  command->add_option("--seed", flags->seed, "Of prompts, arrivals and sampling")->capture_default_str();
  command->add_option("--model", flags->model, "Name of the served model (default: the only one)");
  command->add_flag("--json", flags->json, "Print one JSON object");
  return [flags, &globals] { return Run(*flags, globals); };
}

}  // namespace sluice::cli
