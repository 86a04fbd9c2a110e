// The components of a tokenizer.json, each into the fields of TokenizerSpec that it stands for.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/text/hf_tokenizer_json.h"
#include "engine/text/tokenizer_spec.h"

namespace sluice {

// All of them: INVALID_ARGUMENT for a value that cannot be, UNIMPLEMENTED for a component, or a combination of
// components, that is not supported; both name the key.

// `normalizer`: null, Sequence, NFC, NFD, NFKC, NFKD, Prepend, Replace.
absl::Status ReadHfNormalizer(const HfField& normalizer, std::vector<NormalizerStep>* steps);

// `pre_tokenizer`: null, Sequence, Split, Digits, Punctuation, WhitespaceSplit, CharDelimiterSplit, ByteLevel,
// Metaspace. *byte_level tells whether ByteLevel was one of its steps, so that the model works on bytes.
absl::Status ReadHfPreTokenizer(const HfField& pre_tokenizer, std::vector<PreTokenizerStep>* steps, bool* byte_level);

// `decoder`: null, ByteLevel, ByteFallback, Fuse, Metaspace, Replace, Strip, and Sequences of them in the orders that
// decoder.h supports.
absl::StatusOr<DecoderSpec> ReadHfDecoder(const HfField& decoder);

// The ids that a text gets before and after it.
struct HfTemplate {
  std::vector<int32_t> before;
  std::vector<int32_t> after;
};
// `post_processor`: null, ByteLevel (which only concerns offsets), TemplateProcessing, RobertaProcessing,
// BertProcessing, and Sequences of them.
absl::Status ReadHfPostProcessor(const HfField& post_processor, HfTemplate* result);

}  // namespace sluice
