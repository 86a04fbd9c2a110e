// sluice load: how busy the server is, live.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "absl/strings/str_format.h"
#include "client/cli/commands.h"
#include "client/cli/terminal.h"
#include "client/cpp/client.h"

namespace sluice::cli {
namespace {

struct Flags {
  bool once = false, json = false;
  double interval_s = 1;
};

std::string Json(const v1::GetLoadResponse& load) {
  return nlohmann::ordered_json{{"running", load.running()},
                                {"waiting", load.waiting()},
                                {"waiting_tokens", load.waiting_tokens()},
                                {"kv_blocks",
                                 {{"live", load.kv_blocks_live()},
                                  {"cached", load.kv_blocks_cached()},
                                  {"free", load.kv_blocks_free()},
                                  {"total", load.kv_blocks_total()}}},
                                {"generation_tokens_per_second", load.generation_tokens_per_second()},
                                {"prompt_tokens_per_second", load.prompt_tokens_per_second()},
                                {"preemptions", load.preemptions()},
                                {"draining", load.draining()}}
      .dump();
}

std::string Line(const v1::GetLoadResponse& load) {
  const double total = load.kv_blocks_total() > 0 ? load.kv_blocks_total() : 1;
  constexpr int kWidth = 20;
  const int live = int(kWidth * load.kv_blocks_live() / total + 0.5);
  const int cached = std::min(kWidth - live, int(kWidth * load.kv_blocks_cached() / total + 0.5));
  const std::string bar = std::string(size_t(live), '#') + std::string(size_t(cached), '+') +
                          std::string(size_t(kWidth - live - cached), '.');
  return absl::StrFormat("running %3d  waiting %3d  KV [%s] %3.0f %%  %7.1f tok/s out  %7.1f tok/s in  preempted %d%s",
                         load.running(), load.waiting(), bar, 100 * load.kv_blocks_live() / total,
                         load.generation_tokens_per_second(), load.prompt_tokens_per_second(), load.preemptions(),
                         load.draining() ? "  draining" : "");
}

int Run(const Flags& flags, const Globals& globals) {
  const auto client = client::Client::Create(globals.admin);
  const bool redraw = StdoutIsTerminal() && !flags.json && !flags.once;
  InterruptScope interrupts;
  for (;;) {
    constexpr double kDefaultTimeoutS = 5;
    auto load = client->GetLoad(globals.Deadline(kDefaultTimeoutS));
    if (!load.ok()) {
      if (redraw) std::cout << std::endl;
      return Report(load.status());
    }
    std::cout << (redraw ? "\r\033[K" : "") << (flags.json ? Json(*load) : Line(*load)) << (redraw ? "" : "\n")
              << std::flush;
    const int64_t until = NowNs() + int64_t(flags.interval_s * 1e9);
    while (!flags.once && NowNs() < until && !InterruptScope::Interrupted()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    if (flags.once || InterruptScope::Interrupted() || !std::cout) break;
  }
  if (redraw) std::cout << std::endl;
  return InterruptScope::Interrupted() ? kExitInterrupted : kExitOk;
}

}  // namespace

Command AddLoad(CLI::App& app, const Globals& globals) {
  auto flags = std::make_shared<Flags>();
  CLI::App* command = app.add_subcommand("load", "Show how busy the server is (admin port); Ctrl-C ends it");
  command->add_flag("--once", flags->once, "Print one line and end");
  command->add_flag("--json", flags->json, "One JSON object per line");
  command->add_option("--interval", flags->interval_s, "Seconds between two looks")
      ->check(CLI::Range(0.05, 3600.0))
      ->capture_default_str();
  return [flags, &globals] { return Run(*flags, globals); };
}

}  // namespace sluice::cli
