// Any text as a chat template, rendered over a conversation made of any text: what stands before the first 0x1E byte is
// the template, between it and the second the message, after that JSON of further variables.
#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/check.h"
#include "engine/text/chat_formatter.h"
#include "engine/text/utf8.h"

namespace {

constexpr absl::string_view kMark = "\U0010FFFD";

absl::string_view TakePart(absl::string_view* data) {
  const absl::string_view part = data->substr(0, data->find('\x1E'));
  data->remove_prefix(std::min(part.size() + 1, data->size()));
  return part;
}

sluice::jinja::Limits SmallLimits() {
  sluice::jinja::Limits limits;
  limits.max_steps = 100'000;
  limits.max_built_bytes = 1 << 20;
  limits.max_output_bytes = 1 << 16;
  return limits;
}

void CheckRanges(const sluice::RenderedChat& chat) {
  size_t end = 0;
  for (const auto& range : chat.user_ranges) {
    SLUICE_CHECK(range.begin >= end && range.end > range.begin && range.end <= chat.text.size());
    SLUICE_CHECK(end == 0 || range.begin > end);
    end = range.end;
  }
  SLUICE_CHECK(sluice::FindInvalidUtf8(chat.text) == std::string::npos);
}

// The mark stands in the message only, so wherever it comes out, it must count as user text.
void CheckMarks(const sluice::RenderedChat& chat) {
  for (const sluice::TextSegment& segment : chat.Segments()) {
    SLUICE_CHECK(!segment.parse_special || !absl::StrContains(segment.text, kMark));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  absl::string_view data(reinterpret_cast<const char*>(bytes), size);
  const absl::string_view source = TakePart(&data);
  const absl::string_view message = TakePart(&data);
  const auto parsed = sluice::ChatTemplate::Parse(source, SmallLimits());
  if (!parsed.ok()) return 0;
  sluice::ChatInputs inputs;
  inputs.bos_token = "<s>";
  inputs.eos_token = "</s>";
  inputs.kwargs_json = std::string(data);
  inputs.messages.push_back({.role = "user", .content = absl::StrCat(kMark, message, kMark)});
  inputs.messages.push_back(
      {.role = "assistant",
       .content_parts_json = absl::StrCat(R"([{"type": "text", "text": ")", kMark, R"("}])"),
       .name = std::string(kMark),
       .tool_calls_json = absl::StrCat(R"([{"function": {"name": ")", kMark, R"(", "arguments": {")", kMark,
                                       R"(": [1, 2.5, null, true]}}}])")});
  inputs.messages.push_back({.role = "assistant", .content = std::string(message), .reasoning_content = "r"});
  const auto formatter = sluice::ChatFormatter::Create(source, SmallLimits());
  SLUICE_CHECK(formatter.ok());
  sluice::Conversation conversation;
  conversation.kwargs_json = inputs.kwargs_json;
  for (const sluice::ChatRole role : sluice::kChatRoles) {
    conversation.messages.push_back({role, {absl::StrCat(kMark, message), std::string(kMark)}, ""});
  }
  if (const auto rendered = formatter->Render(conversation); rendered.ok()) {
    CheckRanges(*rendered);
    if (!absl::StrContains(source, kMark) && !absl::StrContains(source, "\\")) CheckMarks(*rendered);
  }
  for (const auto ending : {sluice::ChatEnding::kGenerationPrompt, sluice::ChatEnding::kContinueFinalMessage}) {
    inputs.ending = ending;
    const auto rendered = parsed->Render(inputs);
    if (!rendered.ok()) continue;
    CheckRanges(*rendered);
    const bool template_has_mark = absl::StrContains(source, kMark) || absl::StrContains(source, "\\");
    if (!template_has_mark) CheckMarks(*rendered);
  }
  return 0;
}
