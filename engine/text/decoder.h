// What a token contributes to a decoded text.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "engine/text/tokenizer_spec.h"

namespace sluice {

// Appends the bytes that `token` stands for by `spec`'s byte_level, or its replace and byte_fallback.
void AppendDecoded(absl::string_view token, const DecoderSpec& spec, std::string* out);

}  // namespace sluice
