// A model for server tests: a byte vocabulary, a runner that speaks a script, and a hand on its brake.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/request.h"
#include "server/calls/model_host.h"

namespace sluice {

// Tokens 0 to 255 are the bytes; these come after them. kEnd, kStart and kMark are control tokens.
inline constexpr int32_t kEnd = 256;    // "<|end|>"
inline constexpr int32_t kStart = 257;  // "<|start|>", the begin token
inline constexpr int32_t kMark = 258;   // "<|mark|>"
inline constexpr int32_t kFakeVocabSize = 259;

// What all runners of one test do. Every sequence generates the script's bytes, one token each, then kEnd; past the
// end it begins anew. '#' in the script stands for the last digit of the sequence's seed. A masked token is replaced by
// '~', one that is not among the allowed ones by the first of those. Thread-safe.
class FakeModel {
 public:
  void SetScript(std::string script);
  void SetStepTime(std::chrono::microseconds time);
  // Between Hold and Release steps begin and do not end.
  void Hold();
  void Release();
  // Until the runner stands in a held step.
  void WaitUntilHeld();
  // From now on every step fails, as if the device were gone.
  void FailSteps();
  // From now on logits are not finite.
  void PoisonLogits();

  struct Seen {
    std::vector<int32_t> prompt;
    SamplingParams params;
  };
  // What has come, in order of each sequence's first token.
  std::vector<Seen> seen() const;
  Seen last_seen() const;

  // Of the runner.
  absl::StatusOr<StepResult> Run(const StepPlan& plan);

 private:
  int32_t NextToken(const SampleEntry& entry) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  CondVar changed_;
  std::string script_ ABSL_GUARDED_BY(mutex_) = "hello";
  std::chrono::microseconds step_time_ ABSL_GUARDED_BY(mutex_){0};
  bool held_ ABSL_GUARDED_BY(mutex_) = false;
  bool in_held_step_ ABSL_GUARDED_BY(mutex_) = false;
  bool failing_ ABSL_GUARDED_BY(mutex_) = false;
  bool poisoned_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Seen> seen_ ABSL_GUARDED_BY(mutex_);
};

// `added`: more tokens, which are not special; the model does not have them.
std::shared_ptr<const Tokenizer> FakeTokenizer(bool every_byte = true, const std::vector<std::string>& added = {});

// Wraps each message as <|start|>role:text<|mark|>.
std::shared_ptr<const ChatFormatter> FakeChatTemplate();

// Context 256, blocks of 16 tokens, 64 of them; 8 sequences in a step. Tokenizer and template included.
ModelHost FakeHost(std::shared_ptr<FakeModel> model);

}  // namespace sluice
