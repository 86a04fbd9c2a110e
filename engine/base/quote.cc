#include "engine/base/quote.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace sluice {
namespace {

constexpr size_t kMaxBytes = 100;
constexpr size_t kMaxListed = 16;

// Bytes of the character that `text` starts with; 0 if it starts with none in UTF-8 (Unicode 16, table 3-7).
size_t CharacterBytes(absl::string_view text) {
  const auto byte = [text](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (text.size() < length) return 0;
  const uint8_t low = lead == 0xE0   ? 0xA0
                      : lead == 0xF0 ? 0x90
                                     : 0x80,
                high = lead == 0xED   ? 0x9F
                       : lead == 0xF4 ? 0x8F
                                      : 0xBF;
  if (byte(1) < low || byte(1) > high) return 0;
  for (size_t i = 2; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  return length;
}

char32_t Decode(absl::string_view character) {
  const auto byte = [character](size_t i) { return static_cast<uint8_t>(character[i]); };
  if (character.size() == 1) return byte(0);
  char32_t code_point = byte(0) & (0x7F >> character.size());
  for (size_t i = 1; i < character.size(); ++i) code_point = code_point << 6 | (byte(i) & 0x3F);
  return code_point;
}

// Ranges of Unicode's categories Cc, Cf, Zl, Zp and Co, and of those that a terminal shows as nothing.
bool IsUnseen(char32_t c) {
  struct Range {
    char32_t first, last;
  };
  constexpr Range kRanges[] = {
      {0x00, 0x1F},       {0x7F, 0x9F},       {0xAD, 0xAD},        {0x34F, 0x34F},     {0x600, 0x605},
      {0x61C, 0x61C},     {0x6DD, 0x6DD},     {0x70F, 0x70F},      {0x890, 0x891},     {0x8E2, 0x8E2},
      {0x115F, 0x1160},   {0x17B4, 0x17B5},   {0x180B, 0x180F},    {0x200B, 0x200F},   {0x2028, 0x202E},
      {0x2060, 0x206F},   {0x3164, 0x3164},   {0xE000, 0xF8FF},    {0xFE00, 0xFE0F},   {0xFEFF, 0xFEFF},
      {0xFFA0, 0xFFA0},   {0xFFF0, 0xFFFB},   {0x110BD, 0x110BD},  {0x110CD, 0x110CD}, {0x13430, 0x1343F},
      {0x1BCA0, 0x1BCA3}, {0x1D173, 0x1D17A}, {0xE0000, 0x10FFFF},
  };
  return std::any_of(std::begin(kRanges), std::end(kRanges),
                     [c](const Range& r) { return c >= r.first && c <= r.last; });
}

// A byte alone.
void AppendEscaped(char byte, std::string* out) {
  switch (byte) {
    case '\n':
      return void(*out += "\\n");
    case '\r':
      return void(*out += "\\r");
    case '\t':
      return void(*out += "\\t");
    case '\\':
      return void(*out += "\\\\");
    case '\'':
      return void(*out += "\\'");
    default:
      absl::StrAppendFormat(out, "\\x%02x", static_cast<uint8_t>(byte));
  }
}

}  // namespace

std::string Printable(absl::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const size_t whole = CharacterBytes(text.substr(i)), length = std::max<size_t>(whole, 1);
    const absl::string_view character = text.substr(i, length);
    std::string shown(character);
    if (whole == 0 || IsUnseen(Decode(character)) || character == "\\" || character == "'") {
      shown.clear();
      for (const char byte : character) AppendEscaped(byte, &shown);
    }
    if (out.size() + shown.size() > kMaxBytes) return out += "...";
    out += shown;
    i += length;
  }
  return out;
}

std::string Quote(absl::string_view text) { return absl::StrCat("'", Printable(text), "'"); }

std::string QuoteList(absl::Span<const std::string> texts) {
  constexpr size_t kMaxListBytes = 400;
  size_t listed = 0;
  for (size_t bytes = 0; listed < texts.size() && listed < kMaxListed && bytes < kMaxListBytes; ++listed) {
    bytes += Quote(texts[listed]).size();
  }
  const std::string list =
      absl::StrJoin(texts.first(listed), ", ", [](std::string* out, const std::string& text) { *out += Quote(text); });
  return listed == texts.size() ? list : absl::StrCat(list, " and ", texts.size() - listed, " more");
}

}  // namespace sluice
