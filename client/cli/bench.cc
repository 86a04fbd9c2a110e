// sluice bench: a closed loop of so many callers, or an open loop with Poisson arrivals.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "client/cli/bench_stats.h"
#include "client/cli/commands.h"
#include "client/cli/flag_checks.h"
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
  Goals goals;
  bool json = false, stop_at_eos = false;
};

// The indices of requests that ended, from the library's threads to ours.
class EndedRequests {
 public:
  void Add(int64_t i) {
    const std::lock_guard<std::mutex> lock(mutex_);
    indices_.push_back(i);
    changed_.notify_one();
  }
  // Those that ended since the last call; waits for the first one, but not longer than `patience_ns`.
  std::vector<int64_t> Take(int64_t patience_ns) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait_for(lock, std::chrono::nanoseconds(patience_ns), [this] { return !indices_.empty(); });
    return std::exchange(indices_, {});
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int64_t> indices_;  // guarded by mutex_
};

// One thread sends; the answers come on the library's threads.
class Bench {
 public:
  Bench(const Flags& flags, const Globals& globals) : flags_(flags), globals_(globals) {
    // A connection for every 32 callers or so: one HTTP/2 connection would be the bottleneck before the server is. How
    // many an open loop will have in flight is not known.
    const int connections = flags.rate > 0 ? kMaxConnections : std::min(flags.concurrency / 32 + 1, kMaxConnections);
    for (int i = 0; i < connections; ++i) {
      client::ClientOptions options;
      options.own_connection = true;
      options.retry_unavailable = false;  // an error is a result
      clients_.push_back(client::Client::Create(globals.server, options));
    }
  }

  // Connects, so that no request pays for it.
  absl::Status Connect() {
    for (const auto& client : clients_) {
      auto health = client->CheckHealth("", globals_.Deadline());
      if (absl::IsUnavailable(health.status())) return health.status();
    }
    return absl::OkStatus();
  }

  absl::Status PreparePrompts() {
    if (!flags_.prompt_file.empty()) {
      std::ifstream in(flags_.prompt_file);
      if (!in) {
        return absl::NotFoundError(
            absl::StrCat("--prompt-file: cannot read ", flags_.prompt_file, ": ", std::strerror(errno)));
      }
      for (std::string line; std::getline(in, line);) {
        if (!IsValidUtf8(line)) {
          return absl::InvalidArgumentError(absl::StrCat("--prompt-file: ", flags_.prompt_file, " is not valid UTF-8"));
        }
        if (!line.empty()) prompts_.push_back(line);
      }
      if (prompts_.empty()) return absl::NotFoundError(absl::StrCat("--prompt-file: no lines in ", flags_.prompt_file));
      return absl::OkStatus();
    }
    auto models = clients_[0]->ListModels(globals_.Deadline());
    if (!models.ok()) return models.status();
    for (const auto& model : models->models()) {
      const bool named =
          flags_.model == model.id() || std::count(model.aliases().begin(), model.aliases().end(), flags_.model) > 0;
      if (flags_.model.empty() || named) vocab_size_ = model.vocab_size();
    }
    if (vocab_size_ == 0) return absl::NotFoundError(absl::StrCat("the server has no model '", flags_.model, "'"));
    return absl::OkStatus();
  }

  // Sends requests [first, first + count), each at its time (seconds from now) or, without times, as soon as fewer than
  // --concurrency are in flight. Returns the records of those that ended; SIGINT ends the rest.
  std::vector<RequestRecord> Run(const char* label, int64_t first, int64_t count, const std::vector<double>& times) {
    const size_t most_at_once = times.empty() ? size_t(flags_.concurrency) : size_t(count);
    std::vector<RequestRecord> records(static_cast<size_t>(count));
    std::map<int64_t, std::unique_ptr<client::Stream>> running;
    Progress progress(label, count);
    const int64_t start = NowNs();
    int64_t next = 0, ended = 0;
    v1::StreamCompleteRequest request = MakeRequest(first);  // made before its time comes
    while (ended < count && !InterruptScope::Interrupted()) {
      while (next < count && running.size() < most_at_once &&
             (times.empty() || NowNs() >= start + SecondsToNs(times[size_t(next)]))) {
        running[next] = Send(request, next, &records[size_t(next)]);
        if (++next < count) request = MakeRequest(first + next);
      }
      int64_t patience_ns = kPatienceNs;  // for SIGINT and the progress bar
      if (next < count && !times.empty()) {
        patience_ns = std::min(patience_ns, start + SecondsToNs(times[size_t(next)]) - NowNs());
      }
      for (int64_t i : ended_.Take(patience_ns)) {
        running.erase(i);
        ++ended;
      }
      progress.Update(ended);
    }
    for (auto& [i, stream] : running) stream->Cancel();
    running.clear();
    for (int64_t i : ended_.Take(0)) records[size_t(i)].sent_ns = 0;
    records.erase(std::remove_if(records.begin(), records.end(), [](const RequestRecord& r) { return r.sent_ns == 0; }),
                  records.end());
    return records;
  }

 private:
  static constexpr int kMaxConnections = 8;
  static constexpr int64_t kPatienceNs = 20'000'000;
  static int64_t SecondsToNs(double s) { return int64_t(s * 1e9); }

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

  // *record is written by the stream's thread until ended_ has the index.
  std::unique_ptr<client::Stream> Send(const v1::StreamCompleteRequest& request, int64_t i, RequestRecord* record) {
    client::StreamHandler handler;
    handler.on_delta = [record](const v1::Delta& delta) {
      if (delta.token_ids_size() > 0) record->delta_ns.push_back(NowNs());
    };
    handler.on_completed = [record](const v1::Completed& event) {
      record->prompt_tokens = event.usage().prompt_tokens();
      record->completion_tokens = event.usage().completion_tokens();
    };
    handler.on_done = [this, i, record](const absl::Status& status) {
      record->done_ns = NowNs();
      record->ok = status.ok();
      if (!status.ok()) {
        const std::string reason = client::GetErrorDetails(status).reason;
        record->error = absl::StrCat(absl::StatusCodeToString(status.code()), reason.empty() ? "" : " ", reason);
        record->error_message = std::string(status.message());
      }
      ended_.Add(i);
    };
    record->sent_ns = NowNs();
    return clients_[size_t(i) % clients_.size()]->StreamComplete(request, std::move(handler), globals_.Deadline());
  }

  const Flags& flags_;
  const Globals& globals_;
  std::vector<std::unique_ptr<client::Client>> clients_;
  std::vector<std::string> prompts_;
  uint32_t vocab_size_ = 0;
  EndedRequests ended_;
};

// For a terminal, and with each line set in.
std::string Indented(const std::string& lines) {
  return absl::StrCat("  ", absl::StrReplaceAll(absl::StripSuffix(Printable(lines), "\n"), {{"\n", "\n  "}}), "\n");
}

int Run(const Flags& flags, const Globals& globals) {
  InterruptScope interrupts;
  Bench bench(flags, globals);
  if (absl::Status status = bench.Connect(); !status.ok()) return Report(status);
  if (absl::Status status = bench.PreparePrompts(); !status.ok()) return Report(status);
  // With prompts of its own: those of the measurement must not be in the server's prefix cache.
  const BenchReport warm_up = MakeReport(bench.Run("warm-up", flags.requests, flags.warmup, {}));
  if (warm_up.failed > 0)
    std::cerr << "sluice: warm-up requests failed:\n" << Indented(ErrorsToText(warm_up)) << std::flush;
  const std::vector<double> times =
      flags.rate > 0 ? PoissonTimes(flags.requests, flags.rate, flags.seed) : std::vector<double>();
  const BenchReport report = MakeReport(bench.Run("requests", 0, flags.requests, times), flags.goals);
  if (report.succeeded == 0 && report.failed > 0) {
    std::cerr << "sluice: all requests failed:\n" << Indented(ErrorsToText(report)) << std::flush;
    if (!flags.json) return InterruptScope::Interrupted() ? kExitInterrupted : kExitFailed;
  }
  std::cout << (flags.json ? ToJson(report) + "\n" : ToText(report)) << std::flush;
  if (InterruptScope::Interrupted()) return kExitInterrupted;
  return report.failed == 0 ? kExitOk : kExitFailed;
}

}  // namespace

Command AddBench(CLI::App& app, const Globals& globals) {
  auto flags = std::make_shared<Flags>();
  CLI::App* command = app.add_subcommand("bench", "Measure latency and throughput under load");
  command->footer(
      "TTFT: time to the first token. ITL: time between tokens. TPOT: time per output token after the first. "
      "NTPOT: total time of a request per output token.\n" +
      command->get_footer() + "\nExit code 1: some requests failed; the report counts them by reason.");
  const auto number = [command](const char* flag, auto& value, const FlagCheck& check, const char* help,
                                const char* type = "N") {
    return command->add_option(flag, value, help)->type_name(type)->check(check)->transform(Decimal);
  };
  const FlagCheck many = WholeNumber(1, 1'000'000), milliseconds = NumberAbove(0, 1e9);
  number("--requests", flags->requests, many, "Number of requests to measure")->capture_default_str();
  number("--warmup", flags->warmup, WholeNumber(0, 10'000), "Number of requests sent first, which are not measured")
      ->capture_default_str();
  number("--concurrency", flags->concurrency, WholeNumber(1, 4096),
         "Number of concurrent requests; when one is answered, the next is sent (closed loop)")
      ->capture_default_str();
  number("--rate", flags->rate, Number(0.001, 1e6),
         "Send N requests per second on average, however fast the server answers (open loop, Poisson arrivals)");
  number("--prompt-tokens", flags->prompt_tokens, many, "Length of each prompt, of random tokens")
      ->capture_default_str();
  command->add_option("--prompt-file", flags->prompt_file, "Take the prompts from this file, one per line")
      ->type_name("FILE");
  number("--max-tokens", flags->max_tokens, many, "Length of each answer in tokens")->capture_default_str();
  command->add_flag("--stop-at-eos", flags->stop_at_eos,
                    "Let answers end at an end-of-sequence token, before --max-tokens");
  number("--temperature", flags->temperature, Number(0, 2), "Sampling temperature; 0 takes the most likely token")
      ->capture_default_str();
  number("--seed", flags->seed, WholeNumber(0, UINT64_MAX), "Seed of prompts, arrivals and sampling")
      ->capture_default_str();
  number("--goal-ttft", flags->goals.ttft_ms, milliseconds, "Goodput: count requests with at most this TTFT", "MS");
  number("--goal-tpot", flags->goals.tpot_ms, milliseconds, "Goodput: count requests with at most this TPOT", "MS");
  number("--goal-e2e", flags->goals.e2e_ms, milliseconds, "Goodput: count requests with at most this total time", "MS");
  command->add_option("--model", flags->model, "Name of the served model (default: the only one)")
      ->envname("SLUICE_MODEL")
      ->type_name("NAME")
      ->check(CheckUtf8);
  command->add_flag("--json", flags->json, "Print one JSON object");
  return [flags, &globals] { return Run(*flags, globals); };
}

}  // namespace sluice::cli
