#include "engine/text/decoder.h"

#include "absl/strings/str_replace.h"
#include "engine/text/bpe.h"
#include "engine/text/character_bpe.h"

namespace sluice {

void AppendDecoded(absl::string_view token, const DecoderSpec& spec, std::string* out) {
  if (spec.byte_level) {
    AppendByteLevelBytes(token, out);
    return;
  }
  std::string text(token);
  for (const auto& [from, to] : spec.replace) absl::StrReplaceAll({{from, to}}, &text);
  if (const int byte = spec.byte_fallback ? ParseByteToken(text) : -1; byte >= 0) {
    out->push_back(static_cast<char>(byte));
  } else {
    out->append(text);
  }
}

}  // namespace sluice
