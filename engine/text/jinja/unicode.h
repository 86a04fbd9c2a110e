// The few things Python strings know about characters that templates rely on. REQUIRES for all: `s` is valid UTF-8, and
// positions in it are the first bytes of characters; template sources, JSON and message texts are checked on entry.
#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"
#include "engine/text/utf8.h"

namespace sluice::jinja {

// Bytes of the character at `pos`. REQUIRES: pos < s.size().
inline size_t CharLength(absl::string_view s, size_t pos) { return Utf8Length(s[pos]); }
inline char32_t CharAt(absl::string_view s, size_t pos) { return DecodeUtf8(s.substr(pos)); }
size_t CountChars(absl::string_view s);
// Start of the character that ends at `end`. REQUIRES: 0 < end <= s.size().
size_t PreviousChar(absl::string_view s, size_t end);

// str.isspace(): what strip() and split() without arguments take; also `\s` of the template syntax.
bool IsSpace(char32_t c);
// Ends a line for str.splitlines().
bool IsLineBreak(char32_t c);
// Whether repr() shows the character as it is. Unassigned code points count as printable, since which are assigned
// depends on the Unicode version.
bool IsPrintable(char32_t c);

// str.upper() and str.lower() with the full mappings (ß -> SS, final sigma).
std::string ToUpper(absl::string_view s);
std::string ToLower(absl::string_view s);
// str.lower() of the one character at `pos`, which sees what stands around it (a final sigma).
std::string LowerAt(absl::string_view s, size_t pos);
// Each character in title case ("ǆ" -> "ǅ"): of a word's first one, as str.capitalize() has it.
std::string ToTitle(absl::string_view s);
// str.swapcase() and str.casefold().
std::string SwapCase(absl::string_view s);
std::string FoldCase(absl::string_view s);

// What str.isalpha(), isdecimal(), isdigit(), isnumeric(), isalnum(), islower() and isupper() ask of each character;
// IsTitlecase: of the kind that isupper() and istitle() treat apart ("ǅ").
bool IsAlpha(char32_t c);
bool IsDecimal(char32_t c);
bool IsDigit(char32_t c);
bool IsNumeric(char32_t c);
bool IsAlnum(char32_t c);
bool IsLowercase(char32_t c);
bool IsUppercase(char32_t c);
bool IsTitlecase(char32_t c);
// One of the three above.
inline bool IsCased(char32_t c) { return IsLowercase(c) || IsUppercase(c) || IsTitlecase(c); }

}  // namespace sluice::jinja
