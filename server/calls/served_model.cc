#include "server/calls/served_model.h"

#include <algorithm>
#include <bitset>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/calls/status.h"

namespace sluice {
namespace {

int64_t MaxTokenBytes(const Tokenizer* tokenizer) {
  if (tokenizer == nullptr) return 0;
  size_t longest = 0;
  std::bitset<256> single_bytes;
  for (int32_t id = 0; id < tokenizer->vocab_size(); ++id) {
    const absl::string_view bytes = tokenizer->TokenBytes(id);
    // Added tokens and word-boundary marks are longer as the file spells them.
    longest = std::max({longest, bytes.size(), tokenizer->TokenText(id).size()});
    if (bytes.size() == 1) single_bytes.set(uint8_t(bytes[0]));
  }
  // Where a byte has no token of its own, one unknown token may stand for any stretch of text.
  return single_bytes.all() ? int64_t(longest) : 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ServedModel>> ServedModel::Create(ModelHost host, std::vector<std::string> names,
                                                                 int32_t max_logprobs, Calls* calls,
                                                                 Metrics* metrics, const Clock& clock) {
  std::unique_ptr<StepRunner> runner = std::move(host.runner);
  std::unique_ptr<ServedModel> served(
      new ServedModel(std::move(host), std::move(names), max_logprobs, calls, metrics, clock));
  auto engine = Engine::Create(served->host_.engine, std::move(runner), &served->delivery_, clock);
  if (!engine.ok()) return engine.status();
  served->engine_ = *std::move(engine);
  return served;
}

absl::Status CheckModelName(const std::string& name, const std::vector<std::string>& names) {
  if (name.empty() || std::find(names.begin(), names.end(), name) != names.end()) return absl::OkStatus();
  return CallError(absl::StatusCode::kNotFound, kReasonModelNotFound,
                   absl::StrCat("model: ", Quoted(name), " is not served here; expected '",
                                absl::StrJoin(names, "' or '"), "', or nothing"));
}

ServedModel::ServedModel(ModelHost host, std::vector<std::string> names, int32_t max_logprobs, Calls* calls,
                         Metrics* metrics, const Clock& clock)
    : host_(std::move(host)),
      names_(std::move(names)),
      max_logprobs_(max_logprobs),
      max_token_bytes_(MaxTokenBytes(host_.tokenizer.get())),
      delivery_(names_.front(), calls, metrics, clock) {}

ServedModel::~ServedModel() { Stop(); }

void ServedModel::Stop() {
  if (engine_ != nullptr) engine_->Stop();
  delivery_.Stop();
}

}  // namespace sluice
