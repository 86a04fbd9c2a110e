// Arbitrary bytes as text, as segments, as token ids, as stop strings and as a vocabulary: nothing crashes, what must
// be equal is.
#include <fuzzer/FuzzedDataProvider.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "engine/base/check.h"
#include "engine/text/detokenizer.h"
#include "engine/text/stop_matcher.h"
#include "engine/text/tokenizer.h"
#include "engine/text/utf8.h"
#include "tests/text/tiny_vocabulary.h"

namespace sluice {
namespace {

using absl::string_view;
using Ids = std::vector<int32_t>;

// What every vocabulary must bear: streamed text is whole characters and equals the decoded text.
void CheckDecode(const Tokenizer& tokenizer, const Ids& ids, bool skip_special) {
  const std::string decoded = tokenizer.Decode(ids, skip_special);
  SLUICE_CHECK(FindInvalidUtf8(decoded) == string_view::npos);
  Detokenizer detokenizer(&tokenizer, skip_special);
  std::string streamed;
  for (const int32_t id : ids) {
    const std::string push = detokenizer.Push(id);
    SLUICE_CHECK(FindInvalidUtf8(push) == string_view::npos);
    streamed += push;
  }
  SLUICE_CHECK(streamed + detokenizer.Flush() == decoded);
}

Ids CheckEncode(const Tokenizer& tokenizer, const std::string& text, EncodeOptions options) {
  const absl::StatusOr<Ids> ids = tokenizer.Encode(text, options);
  if (FindInvalidUtf8(text) != string_view::npos) {
    SLUICE_CHECK(absl::IsInvalidArgument(ids.status()));
    return {};
  }
  SLUICE_CHECK(ids.ok());
  for (const int32_t id : *ids) SLUICE_CHECK(tokenizer.Contains(id));
  return *ids;
}

// `merges_spare_control`: no control token is what merging makes of text.
void CheckText(const Tokenizer& tokenizer, bool merges_spare_control, FuzzedDataProvider* data) {
  const EncodeOptions options = {.add_special = data->ConsumeBool(), .parse_special = data->ConsumeBool()};
  std::vector<std::string> parts(data->ConsumeIntegralInRange<size_t>(0, 4));
  std::vector<TextSegment> segments;
  std::string text;
  for (std::string& part : parts) {
    part = data->ConsumeRandomLengthString();
    text += part;
    segments.push_back({part, true});
  }
  const Ids ids = CheckEncode(tokenizer, text, options);
  CheckDecode(tokenizer, ids, data->ConsumeBool());
  const absl::StatusOr<Ids> whole = tokenizer.Encode(absl::MakeConstSpan(segments), options);
  SLUICE_CHECK(!whole.ok() || *whole == ids);
  for (TextSegment& segment : segments) segment.parse_special = data->ConsumeBool();
  const absl::StatusOr<Ids> mixed = tokenizer.Encode(absl::MakeConstSpan(segments), options);
  SLUICE_CHECK(mixed.ok() == whole.ok());
  for (TextSegment& segment : segments) segment.parse_special = false;
  const absl::StatusOr<Ids> message = tokenizer.Encode(absl::MakeConstSpan(segments), {.add_special = false});
  SLUICE_CHECK(message.ok() == whole.ok());
  for (size_t i = 0; message.ok() && merges_spare_control && i < message->size(); ++i) {
    SLUICE_CHECK(!tokenizer.IsControl((*message)[i]));
  }

  Ids any;
  for (const uint8_t byte : data->ConsumeBytes<uint8_t>(64)) any.push_back(static_cast<int32_t>(byte) * 2 - 1);
  CheckDecode(tokenizer, any, data->ConsumeBool());
}

void CheckTinyVocabularies(FuzzedDataProvider* data) {
  static const auto* const byte_level = [] {
    auto* v = new TinyVocabulary(TinyVocabulary::ByteLevel(
        "smollm", {"a a", "aa aa", "a b", "Ġ a", "Ġ Ġ", "ð Ł", "Ã ©", "' s"}, {"<|a|>", "<|a|>b", "a<|"}));
    for (const char* token : {"|>", "a<", "b<|a", "<|b|>"}) v->Add(token, TokenType::kUserDefined);
    return v;
  }();
  static const auto* const sentence_piece =
      new TinyVocabulary(TinyVocabulary::SentencePiece({"▁a", "aa", "ab", "▁▁", "é", "▁", "a", "b", "s>", "<s"}));
  const bool bytes = data->ConsumeBool();
  static const std::unique_ptr<const Tokenizer> tokenizers[] = {*Tokenizer::Create(sentence_piece->spec),
                                                                *Tokenizer::Create(byte_level->spec)};
  const Tokenizer& tokenizer = *tokenizers[bytes];
  // All bytes are in these vocabularies, so ordinary text comes back (a ▁ of the text is a space to SentencePiece).
  std::string text = data->ConsumeRandomLengthString();
  const Ids ids = CheckEncode(tokenizer, text, {.parse_special = false});
  if (!bytes) text = absl::StrReplaceAll(text, {{"▁", " "}});
  SLUICE_CHECK(FindInvalidUtf8(text) != string_view::npos || tokenizer.Decode(ids, false) == text);
  CheckText(tokenizer, /*merges_spare_control=*/true, data);
}

void CheckAnyVocabulary(FuzzedDataProvider* data) {
  TinyVocabulary vocabulary =
      data->ConsumeBool() ? TinyVocabulary::ByteLevel("llama-bpe", {}) : TinyVocabulary::SentencePiece({});
  std::vector<std::string> merges(data->ConsumeIntegralInRange<size_t>(0, 3));
  for (std::string& merge : merges) {
    merge = data->ConsumeRandomLengthString(16);
    vocabulary.spec.merges.push_back(ParseMergeRule(merge));
  }
  for (int count = data->ConsumeIntegralInRange(0, 12); count > 0; --count) {
    const auto type = static_cast<TokenType>(data->ConsumeIntegralInRange(0, 7));
    const float score = data->ConsumeFloatingPoint<float>();
    vocabulary.Add(data->ConsumeRandomLengthString(16), type, score);
  }
  vocabulary.spec.unk_id = data->ConsumeIntegralInRange(-1, 300);
  vocabulary.spec.add_space_prefix = data->ConsumeBool();
  const absl::StatusOr<std::unique_ptr<const Tokenizer>> tokenizer = Tokenizer::Create(vocabulary.spec);
  if (tokenizer.ok()) CheckText(**tokenizer, /*merges_spare_control=*/false, data);
}

void CheckStops(FuzzedDataProvider* data) {
  std::vector<std::string> stops(data->ConsumeIntegralInRange<size_t>(0, 4));
  for (std::string& stop : stops) stop = data->ConsumeRandomLengthString(12);
  const bool include = data->ConsumeBool();
  const absl::StatusOr<StopMatcher> matcher = StopMatcher::Create(stops, include);
  if (!matcher.ok()) return;
  StopMatcher at_once = *matcher, in_parts = *matcher;
  std::string all, streamed;
  int stop_index = -1;
  while (data->remaining_bytes() > 0) {
    const std::string part = data->ConsumeRandomLengthString(8);
    all += part;
    const StopMatcher::Result result = in_parts.Push(part);
    streamed += result.text;
    if (result.stop_index >= 0) stop_index = result.stop_index;
  }
  streamed += in_parts.Flush();
  const StopMatcher::Result result = at_once.Push(all);
  SLUICE_CHECK(result.stop_index == stop_index);
  SLUICE_CHECK(result.text + at_once.Flush() == streamed);
  SLUICE_CHECK(string_view(all).substr(0, streamed.size()) == streamed);
  for (const std::string& stop : stops) {
    const size_t found = streamed.find(stop);
    SLUICE_CHECK(found == std::string::npos || (include && found + stop.size() == streamed.size()));
  }
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  FuzzedDataProvider data(bytes, size);
  switch (data.ConsumeIntegralInRange(0, 3)) {
    case 0:
    case 1:
      sluice::CheckTinyVocabularies(&data);
      break;
    case 2:
      sluice::CheckAnyVocabulary(&data);
      break;
    case 3:
      sluice::CheckStops(&data);
      break;
  }
  return 0;
}
