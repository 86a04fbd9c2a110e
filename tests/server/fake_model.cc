#include "tests/server/fake_model.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/status_macros.h"
#include "engine/base/token_bitmask.h"
#include "engine/text/bpe.h"
#include "engine/text/chat_formatter.h"
#include "engine/text/utf8.h"

namespace sluice {
namespace {

class FakeRunner final : public StepRunner {
 public:
  explicit FakeRunner(std::shared_ptr<FakeModel> model) : model_(std::move(model)) {}
  absl::Status Launch(const StepPlan& plan) override {
    SLUICE_ASSIGN_OR_RETURN(result_, model_->Run(plan));
    return absl::OkStatus();
  }
  absl::StatusOr<StepResult> Take() override { return std::move(result_); }

 private:
  StepResult result_;
  const std::shared_ptr<FakeModel> model_;
};

TokenLogprobs FakeLogprobs(int32_t token, float logprob, int32_t num_top) {
  TokenLogprobs logprobs;
  logprobs.chosen = {.token = token, .logprob = logprob};
  logprobs.rank = 3;
  for (int32_t i = 0; i < num_top; ++i) logprobs.top.push_back({.token = i, .logprob = -1.0f - float(i)});
  return logprobs;
}

}  // namespace

void FakeModel::SetScript(std::string script) {
  MutexLock lock(&mutex_);
  script_ = std::move(script);
}

void FakeModel::SetStepTime(std::chrono::microseconds time) {
  MutexLock lock(&mutex_);
  step_time_ = time;
}

void FakeModel::Hold() {
  MutexLock lock(&mutex_);
  held_ = true;
}

void FakeModel::Release() {
  MutexLock lock(&mutex_);
  held_ = false;
  changed_.NotifyAll();
}

void FakeModel::WaitUntilHeld() {
  MutexLock lock(&mutex_);
  while (!in_held_step_) changed_.Wait(&mutex_);
}

void FakeModel::FailSteps() {
  MutexLock lock(&mutex_);
  failing_ = true;
}

void FakeModel::PoisonLogits() {
  MutexLock lock(&mutex_);
  poisoned_ = true;
}

std::vector<FakeModel::Seen> FakeModel::seen() const {
  MutexLock lock(&mutex_);
  return seen_;
}

FakeModel::Seen FakeModel::last_seen() const {
  MutexLock lock(&mutex_);
  SLUICE_CHECK(!seen_.empty());
  return seen_.back();
}

int32_t FakeModel::NextToken(const SampleEntry& entry) const {
  const size_t place = entry.output_tokens.size() % (script_.size() + 1);
  int32_t token = place == script_.size() ? kEnd : uint8_t(script_[place]);
  if (token == '#') token = '0' + int32_t(entry.params->seed % 10);
  const auto& masked = entry.masked_tokens;
  if (std::find(masked.begin(), masked.end(), token) != masked.end()) token = '~';
  if (entry.allowed_tokens.empty() || HasToken(entry.allowed_tokens, token)) return token;
  token = 0;
  while (!HasToken(entry.allowed_tokens, token)) ++token;
  return token;
}

absl::StatusOr<StepResult> FakeModel::Run(const StepPlan& plan) {
  std::chrono::microseconds step_time;
  StepResult result;
  {
    MutexLock lock(&mutex_);
    in_held_step_ = held_;
    if (held_) changed_.NotifyAll();
    while (held_) changed_.Wait(&mutex_);
    in_held_step_ = false;
    if (failing_) return absl::InternalError("the fake device is gone");
    step_time = step_time_;
    for (const SampleEntry& entry : plan.samples) {
      if (entry.output_tokens.empty()) {
        seen_.push_back({{entry.prompt_tokens.begin(), entry.prompt_tokens.end()}, *entry.params});
      }
      SampledToken sampled;
      sampled.token = NextToken(entry);
      sampled.finite = !poisoned_;
      if (entry.params->logprobs.has_value()) {
        sampled.logprobs = FakeLogprobs(sampled.token, -0.5f, *entry.params->logprobs);
      }
      result.samples.push_back(std::move(sampled));
    }
  }
  for (const PromptLogprobEntry& entry : plan.prompt_logprobs) {
    result.prompt_logprobs.push_back(FakeLogprobs(entry.token, -0.25f, entry.num_top));
  }
  if (step_time.count() > 0) std::this_thread::sleep_for(step_time);
  return result;
}

std::shared_ptr<const Tokenizer> FakeTokenizer(bool every_byte, const std::vector<std::string>& added) {
  // The tokenizer keeps pointing at the spellings.
  struct Owned {
    std::vector<std::string> spellings;
    std::unique_ptr<const Tokenizer> tokenizer;
  };
  auto owned = std::make_shared<Owned>();
  for (int byte = 0; byte < 256; ++byte) {
    AppendUtf8(ByteLevelCharacter(uint8_t(byte)), &owned->spellings.emplace_back());
  }
  if (!every_byte) owned->spellings.back() = "unused";
  for (const char* control : {"<|end|>", "<|start|>", "<|mark|>"}) owned->spellings.push_back(control);
  owned->spellings.insert(owned->spellings.end(), added.begin(), added.end());
  TokenizerSpec spec;
  spec.tokens.assign(owned->spellings.begin(), owned->spellings.end());
  spec.types.assign(256, TokenType::kNormal);
  spec.types.resize(kFakeVocabSize, TokenType::kControl);
  spec.types.resize(spec.tokens.size(), TokenType::kUserDefined);
  spec.pre = "gpt-2";
  spec.add_bos = true;
  spec.bos_id = kStart;
  spec.eos_id = kEnd;
  auto tokenizer = Tokenizer::Create(std::move(spec));
  SLUICE_CHECK(tokenizer.ok());
  owned->tokenizer = *std::move(tokenizer);
  return {owned, owned->tokenizer.get()};
}

std::shared_ptr<const ChatFormatter> FakeChatTemplate() {
  auto formatter = ChatFormatter::Create(
      "{% for message in messages %}<|start|>{{ message.role }}{% if message.name %}({{ message.name }}){% endif %}:"
      "{{ message.content }}{% if not (loop.last and continue_final_message) %}<|mark|>{% endif %}{% endfor %}"
      "{% if mood %}[{{ mood }}]{% endif %}{% if add_generation_prompt %}<|start|>assistant:{% endif %}");
  SLUICE_CHECK(formatter.ok());
  return std::make_shared<const ChatFormatter>(*std::move(formatter));
}

ModelHost FakeHost(std::shared_ptr<FakeModel> model) {
  ModelHost host;
  host.architecture = "fake";
  host.weight_type = "F32";
  host.activations = "int16";
  host.kv_type = "f16";
  host.device = "cpu";
  host.num_threads = 1;
  host.num_parameters = 1234;
  host.context_length = 512;
  host.kv_bytes = 4096;
  host.load_seconds = 0.125;
  host.tokenizer = FakeTokenizer();
  host.chat_template = FakeChatTemplate();
  host.engine.max_model_len = 256;
  host.engine.vocab_size = kFakeVocabSize;
  host.engine.eos_token_ids = {kEnd};
  host.engine.block_size = 16;
  host.engine.num_blocks = 64;
  host.engine.max_num_seqs = 8;
  host.engine.max_num_batched_tokens = 64;
  host.engine.max_queued_requests = 32;
  host.runner = std::make_unique<FakeRunner>(std::move(model));
  return host;
}

}  // namespace sluice
