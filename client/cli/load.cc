// sluice load: how busy the server is, live.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <climits>
#include <iostream>
#include <memory>
#include <thread>

#include "client/cli/commands.h"
#include "client/cli/flag_checks.h"
#include "client/cli/live_line.h"
#include "client/cli/load_text.h"
#include "client/cli/terminal.h"
#include "client/cpp/client.h"

namespace sluice::cli {
namespace {

struct Flags {
  bool once = false, json = false;
  double interval_s = 1;
};

int Run(const Flags& flags, const Globals& globals) {
  const auto client = client::Client::Create(globals.admin);
  const bool redraw = StdoutIsTerminal() && !flags.json && !flags.once;
  LiveLine line;
  InterruptScope interrupts;
  for (;;) {
    constexpr double kDefaultTimeoutS = 5;
    auto load = client->GetLoad(globals.Deadline(kDefaultTimeoutS));
    if (!load.ok()) {
      if (redraw) std::cout << std::endl;
      return Report(load.status());
    }
    // A pipe gets every line in its longest form.
    const int width = StdoutIsTerminal() ? TerminalWidth(STDOUT_FILENO) : INT_MAX;
    const std::string text = flags.json ? LoadJson(*load) : LoadLine(*load, width - 1);
    std::cout << (redraw ? line.Draw(text, width) : text + "\n") << std::flush;
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
  CLI::App* command = app.add_subcommand("load", "Show how busy the server is, live (admin port)");
  command->add_flag("--once", flags->once, "Print one line and stop");
  command->add_flag("--json", flags->json, "Print one JSON object per line");
  command->add_option("--interval", flags->interval_s, "Seconds between updates")
      ->type_name("SECONDS")
      ->check(Number(0.05, 3600))
      ->capture_default_str();
  return [flags, &globals] { return Run(*flags, globals); };
}

}  // namespace sluice::cli
