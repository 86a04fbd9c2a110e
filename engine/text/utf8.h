// UTF-8 as Unicode 16 table 3-7 defines it: no overlong forms, no surrogates, nothing above U+10FFFF.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace sluice {

// Offset of the first byte that is not part of a valid character, or npos.
size_t FindInvalidUtf8(absl::string_view text);

// Length in bytes of the character that starts with `lead`. REQUIRES: `lead` starts a valid character.
inline size_t Utf8Length(char lead) {
  const uint8_t byte = static_cast<uint8_t>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

// The first character of `text`. REQUIRES: `text` is not empty and valid.
char32_t DecodeUtf8(absl::string_view text);

// REQUIRES: `code_point` is a Unicode scalar value.
void AppendUtf8(char32_t code_point, std::string* out);

// Bytes that arrive in arbitrary portions, passed on as whole characters. Each maximal subpart of an ill-formed
// sequence (the longest beginning of a character, or one byte) becomes one U+FFFD, as soon as the byte that spoils it
// is seen (Unicode 16, section 3.9, "U+FFFD Substitution of Maximal Subparts").
class Utf8Assembler {
 public:
  void Push(absl::string_view bytes, std::string* out);
  // Replaces an unfinished character.
  void Flush(std::string* out);

 private:
  std::string pending_;  // 0 to 3 bytes: a valid beginning of a character
};

}  // namespace sluice
