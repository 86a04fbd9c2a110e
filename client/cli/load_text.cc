#include "client/cli/load_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/model_state.h"
#include "client/cli/word_wrap.h"

namespace sluice::cli {
namespace {

// "[####++....]": live and cached blocks of all.
std::string Bar(const v1::GetLoadResponse& load, int width) {
  const double total = std::max<double>(load.kv_blocks_total(), 1);
  const int live = int(width * load.kv_blocks_live() / total + 0.5);
  const int cached = std::min(width - live, int(width * load.kv_blocks_cached() / total + 0.5));
  return absl::StrCat("[", std::string(size_t(live), '#'), std::string(size_t(cached), '+'),
                      std::string(size_t(width - live - cached), '.'), "]");
}

}  // namespace

std::string LoadLine(const v1::GetLoadResponse& load, int columns) {
  const bool idle = load.running() == 0 && load.waiting() == 0;
  const bool unusable = load.state() == v1::MODEL_STATE_LOADING || (load.state() == v1::MODEL_STATE_FAILED && idle);
  if (unusable) return FitColumns(StateSentence(load.state()), columns);

  const double used = 100 * load.kv_blocks_live() / std::max<double>(load.kv_blocks_total(), 1);
  const double out = load.generation_tokens_per_second(), in = load.prompt_tokens_per_second();
  const std::string state = load.state() == v1::MODEL_STATE_FAILED ? "failed" : load.draining() ? "draining" : "";
  const auto wide = [&](const std::string& bar) {
    return absl::StrFormat("running %3d  waiting %3d  KV %s%3.0f %%  %7.1f tok/s out  %7.1f tok/s in  preempted %d%s%s",
                           load.running(), load.waiting(), bar, used, out, in, load.preemptions(),
                           state.empty() ? "" : "  ", state);
  };
  const std::string narrow = absl::StrFormat("%s%srun %d  wait %d  KV %.0f %%", state, state.empty() ? "" : "  ",
                                             load.running(), load.waiting(), used);
  const std::string forms[] = {
      wide(Bar(load, 20) + " "), wide(Bar(load, 10) + " "), wide(""),
      absl::StrFormat("%s  %.0f tok/s out  %.0f in  preempted %d", narrow, out, in, load.preemptions()),
      absl::StrFormat("%s  %.0f tok/s", narrow, out)};
  for (const std::string& form : forms) {
    if (int(form.size()) <= columns) return form;
  }
  return FitColumns(narrow, columns);
}

std::string LoadJson(const v1::GetLoadResponse& load) {
  return nlohmann::ordered_json{{"state", StateName(load.state())},
                                {"running", load.running()},
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

}  // namespace sluice::cli
