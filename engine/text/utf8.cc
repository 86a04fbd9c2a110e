#include "engine/text/utf8.h"

#include "engine/base/check.h"

namespace sluice {
namespace {

constexpr absl::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

enum class Form { kWhole, kIllFormed, kUnfinished };

struct Sequence {
  Form form;
  size_t length;  // kWhole: the character; kIllFormed: its maximal subpart; kUnfinished: all that is left of the text
};

// What `text` starts with. REQUIRES: not empty.
Sequence FirstSequence(absl::string_view text) {
  const auto byte = [text](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {Form::kWhole, 1};
  if (lead < 0xC2 || lead > 0xF4) return {Form::kIllFormed, 1};
  const size_t length = Utf8Length(text[0]);
  for (size_t i = 1; i < length; ++i) {
    if (i == text.size()) return {Form::kUnfinished, i};
    // Only the second byte has a range that depends on the lead: it excludes overlong forms, surrogates and > U+10FFFF.
    uint8_t low = 0x80, high = 0xBF;
    if (i == 1 && lead == 0xE0) low = 0xA0;
    if (i == 1 && lead == 0xED) high = 0x9F;
    if (i == 1 && lead == 0xF0) low = 0x90;
    if (i == 1 && lead == 0xF4) high = 0x8F;
    if (byte(i) < low || byte(i) > high) return {Form::kIllFormed, i};
  }
  return {Form::kWhole, length};
}

}  // namespace

size_t FindInvalidUtf8(absl::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const Sequence sequence = FirstSequence(text.substr(i));
    if (sequence.form != Form::kWhole) return i;
    i += sequence.length;
  }
  return absl::string_view::npos;
}

char32_t DecodeUtf8(absl::string_view text) {
  const auto byte = [text](size_t i) { return static_cast<uint8_t>(text[i]); };
  const size_t length = Utf8Length(text[0]);
  if (length == 1) return byte(0);
  char32_t code_point = byte(0) & (0x7F >> length);
  for (size_t i = 1; i < length; ++i) code_point = code_point << 6 | (byte(i) & 0x3F);
  return code_point;
}

void AppendUtf8(char32_t code_point, std::string* out) {
  SLUICE_CHECK(code_point <= 0x10FFFF && !(code_point >= 0xD800 && code_point <= 0xDFFF));
  if (code_point < 0x80) {
    out->push_back(static_cast<char>(code_point));
    return;
  }
  const int tail = code_point < 0x800 ? 1 : code_point < 0x10000 ? 2 : 3;
  constexpr uint8_t kLead[] = {0, 0xC0, 0xE0, 0xF0};
  out->push_back(static_cast<char>(kLead[tail] | code_point >> (6 * tail)));
  for (int i = tail - 1; i >= 0; --i) out->push_back(static_cast<char>(0x80 | (code_point >> (6 * i) & 0x3F)));
}

void Utf8Assembler::Push(absl::string_view bytes, std::string* out) {
  std::string joined;
  if (!pending_.empty()) {
    joined = pending_;
    joined.append(bytes.data(), bytes.size());
    pending_.clear();
    bytes = joined;
  }
  while (!bytes.empty()) {
    const Sequence sequence = FirstSequence(bytes);
    const absl::string_view head = bytes.substr(0, sequence.length);
    bytes.remove_prefix(sequence.length);
    switch (sequence.form) {
      case Form::kWhole:
        out->append(head.data(), head.size());
        break;
      case Form::kIllFormed:
        out->append(kReplacement.data(), kReplacement.size());
        break;
      case Form::kUnfinished:
        pending_.assign(head.data(), head.size());
        break;
    }
  }
}

void Utf8Assembler::Flush(std::string* out) {
  if (!pending_.empty()) out->append(kReplacement.data(), kReplacement.size());
  pending_.clear();
}

}  // namespace sluice
