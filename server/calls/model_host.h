// What the server needs of a model. The program fills it from a loaded file, tests from stand-ins.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine_options.h"
#include "engine/model/generation_defaults.h"
#include "engine/scheduler/step_runner.h"
#include "engine/text/tokenizer.h"

namespace sluice {

class ChatFormatter;

struct ModelHost {
  // Told to clients.
  std::string architecture;     // "llama"
  std::string weight_type;      // how the files store most weights: "Q4_1"
  std::string activations;      // "int16"
  std::string kv_type;          // "f16"
  std::string device;           // "cpu"
  int32_t num_threads = 0;      // that compute
  uint64_t num_parameters = 0;  // weights
  int32_t context_length = 0;   // of the model, as trained or as far as YaRN stretches it
  uint64_t kv_bytes = 0;        // of the whole pool
  uint64_t weight_bytes = 0;    // of the matrices as they lie in memory
  double load_seconds = 0;      // what reading the model took

  std::shared_ptr<const Tokenizer> tokenizer;          // null: token ids only
  std::shared_ptr<const ChatFormatter> chat_template;  // null: no Chat
  std::string chat_template_error;                     // why the model's template cannot be used, with line and column
  GenerationDefaults defaults;

  EngineOptions engine;  // max_model_len, vocab_size, end tokens, blocks and limits
  std::unique_ptr<StepRunner> runner;
};

}  // namespace sluice
