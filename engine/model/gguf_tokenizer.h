// The tokenizer that a GGUF file carries in its tokenizer.ggml.* keys.
#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "engine/io/gguf.h"
#include "engine/text/tokenizer_spec.h"

namespace sluice {

// Nothing if the file has no vocabulary (tokenizer.ggml.model missing or "none"). The result owns its strings.
// UNIMPLEMENTED: a tokenizer model other than "gpt2" and "llama"; errors of the keys name them. What the lists hold is
// checked by Tokenizer::Create.
absl::StatusOr<std::optional<TokenizerSpec>> ReadTokenizerSpec(const Gguf& gguf);

}  // namespace sluice
