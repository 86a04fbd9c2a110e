// Arbitrary bytes as tokenizer.json, or as a folder of files: what is read and can be made encodes and decodes without
// a crash, and streams as it decodes.
#include <fuzzer/FuzzedDataProvider.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "engine/text/detokenizer.h"
#include "engine/text/hf_tokenizer.h"
#include "engine/text/tokenizer.h"
#include "engine/text/utf8.h"

namespace sluice {
namespace {

using absl::string_view;
using Ids = std::vector<int32_t>;

void CheckDecode(const Tokenizer& tokenizer, const Ids& ids) {
  for (const bool skip_special : {false, true}) {
    const std::string decoded = tokenizer.Decode(ids, skip_special);
    SLUICE_CHECK(FindInvalidUtf8(decoded) == string_view::npos);
    Detokenizer detokenizer(&tokenizer, skip_special);
    std::string streamed;
    for (const int32_t id : ids) streamed += detokenizer.Push(id);
    SLUICE_CHECK(streamed + detokenizer.Flush() == decoded);
  }
}

void CheckTokenizer(const Tokenizer& tokenizer) {
  constexpr string_view kTexts[] = {"", " ", "ab  he<L> wo\u0308rd ABCDE\n", "a😀\u0301\u0323 中文 1234's <s>▁x"};
  for (const string_view text : kTexts) {
    for (const bool parse_special : {false, true}) {
      const absl::StatusOr<Ids> ids = tokenizer.Encode(text, {.parse_special = parse_special});
      if (!ids.ok()) continue;  // a pattern of the file gave up
      for (const int32_t id : *ids) SLUICE_CHECK(tokenizer.Contains(id));
      CheckDecode(tokenizer, *ids);
    }
    const size_t middle = text.size() / 2 - (text.size() > 2 ? text.size() / 2 % 2 : 0);
    if (FindInvalidUtf8(text.substr(0, middle)) != string_view::npos) continue;
    const std::vector<TextSegment> segments = {{text.substr(0, middle), true}, {text.substr(middle), false}};
    (void)tokenizer.Encode(absl::MakeConstSpan(segments));
  }
  Ids some;
  for (int32_t id = -1; id < 64; ++id) some.push_back(id);
  CheckDecode(tokenizer, some);
}

void CheckFiles(const HfTokenizerFiles& files) {
  absl::StatusOr<HfTokenizer> read = ReadHfTokenizer(files);
  if (!read.ok()) {
    SLUICE_CHECK(!read.status().message().empty());
    return;
  }
  const absl::StatusOr<std::unique_ptr<const Tokenizer>> tokenizer = Tokenizer::Create(std::move(read->spec));
  if (tokenizer.ok()) CheckTokenizer(**tokenizer);
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  // A file of one's own, as the seeds are, begins with a brace; anything else is a folder.
  if (size > 0 && bytes[0] == '{') {
    sluice::CheckFiles({.tokenizer_json = absl::string_view(reinterpret_cast<const char*>(bytes), size)});
    return 0;
  }
  FuzzedDataProvider data(bytes, size);
  const bool tiktoken = data.ConsumeBool();
  const std::string config = data.ConsumeRandomLengthString(), map = data.ConsumeRandomLengthString();
  const std::string main = data.ConsumeRemainingBytesAsString();
  sluice::CheckFiles({.tokenizer_json = tiktoken ? "" : absl::string_view(main),
                      .tiktoken_model = main,
                      .tokenizer_config_json = config,
                      .special_tokens_map_json = map});
  return 0;
}
