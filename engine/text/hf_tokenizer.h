// The tokenizer of a Hugging Face folder: tokenizer.json (or tiktoken.model) with the files beside it, as data.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/text/tokenizer_spec.h"

namespace sluice {

// The contents of the folder's files; empty: there is no such file. Needed only during ReadHfTokenizer.
struct HfTokenizerFiles {
  absl::string_view tokenizer_json = {};
  absl::string_view tiktoken_model = {};         // read only where there is no tokenizer_json
  absl::string_view tokenizer_config_json = {};  // names of BOS, EOS, padding; the chat template; further added tokens
  absl::string_view special_tokens_map_json = {};  // the same names, where tokenizer_config.json has none
  absl::string_view chat_template_jinja = {};      // wins over the template in tokenizer_config.json
};

struct HfTokenizer {
  TokenizerSpec spec;         // owns its strings; Tokenizer::Create takes it
  std::string chat_template;  // Jinja source, the one named "default" where there are several; empty if there is none
};

// What tokenizer.json says wins over tokenizer_config.json's tokenizer_class: BOS and EOS are added exactly where its
// post_processor adds them. INVALID_ARGUMENT names the file, the key, what was found and what was expected;
// UNIMPLEMENTED names a component that is not supported: nothing is ever ignored. NOT_FOUND: neither tokenizer_json nor
// tiktoken_model.
absl::StatusOr<HfTokenizer> ReadHfTokenizer(const HfTokenizerFiles& files);

// Only the chat template of the folder, for a folder without a tokenizer.
absl::StatusOr<std::string> ReadHfChatTemplate(const HfTokenizerFiles& files);

}  // namespace sluice
