#include "engine/text/jinja/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>

namespace sluice::jinja {
namespace {

struct CaseRun {
  char32_t first, last;
  int stride;
  int delta;
};
struct CaseSpecial {
  char32_t from;
  char32_t to[3];  // padded with 0
};
struct CharRange {
  char32_t first, last;
};
#include "engine/text/jinja/unicode_case.inc"

// General categories Cc, Cf, Cs, Co, Zl, Zp and Zs without the space itself, and the noncharacters of the BMP.
constexpr CharRange kNotPrintable[] = {
    {0x00, 0x1F},       {0x7F, 0xA0},       {0xAD, 0xAD},       {0x600, 0x605},     {0x61C, 0x61C},
    {0x6DD, 0x6DD},     {0x70F, 0x70F},     {0x890, 0x891},     {0x8E2, 0x8E2},     {0x1680, 0x1680},
    {0x180E, 0x180E},   {0x2000, 0x200F},   {0x2028, 0x202F},   {0x205F, 0x2064},   {0x2066, 0x206F},
    {0x3000, 0x3000},   {0xD800, 0xF8FF},   {0xFDD0, 0xFDEF},   {0xFEFF, 0xFEFF},   {0xFFF9, 0xFFFB},
    {0xFFFE, 0xFFFF},   {0x110BD, 0x110BD}, {0x110CD, 0x110CD}, {0x13430, 0x13438}, {0x1BCA0, 0x1BCA3},
    {0x1D173, 0x1D17A}, {0xE0001, 0xE0001}, {0xE0020, 0xE007F}, {0xF0000, 0x10FFFF}};

bool IsContinuation(char c) { return (static_cast<uint8_t>(c) & 0xC0) == 0x80; }

template <size_t n>
bool In(const CharRange (&ranges)[n], char32_t c) {
  const CharRange* range = std::partition_point(ranges, ranges + n, [c](const CharRange& r) { return r.last < c; });
  return range != ranges + n && range->first <= c;
}

utf8proc_category_t Category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

// Appends one of the special mappings; false if `c` has none.
template <size_t n>
bool AppendSpecial(const CaseSpecial (&specials)[n], char32_t c, std::string* out) {
  for (const CaseSpecial& special : specials) {
    if (special.from != c) continue;
    for (char32_t to : special.to) {
      if (to != 0) AppendUtf8(to, out);
    }
    return true;
  }
  return false;
}

// Appends the mapping of `c` to `out`; false if it has none.
template <size_t num_runs, size_t num_specials>
bool AppendMapped(const CaseRun (&runs)[num_runs], const CaseSpecial (&specials)[num_specials], char32_t c,
                  std::string* out) {
  if (AppendSpecial(specials, c, out)) return true;
  for (const CaseRun& run : runs) {
    if (c < run.first || c > run.last || (c - run.first) % run.stride != 0) continue;
    AppendUtf8(static_cast<char32_t>(static_cast<int64_t>(c) + run.delta), out);
    return true;
  }
  return false;
}

// Characters that a search for cased letters around a sigma passes over.
bool IsCaseIgnorable(char32_t c) {
  switch (Category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return c == '\'' || c == '.' || c == ':' || c == 0xB7 || c == 0x387 || c == 0x55F || c == 0x5F4 || c == 0x2018 ||
             c == 0x2019 || c == 0x2024 || c == 0x2027 || c == 0xFE13 || c == 0xFE52 || c == 0xFE55 || c == 0xFF07 ||
             c == 0xFF0E || c == 0xFF1A;
  }
}

// Whether the sigma at `pos` ends a word: a cased letter stands before it, and none after it.
bool IsFinalSigma(absl::string_view s, size_t pos) {
  size_t before = pos;
  bool follows_letter = false;
  while (before > 0 && !follows_letter) {
    before = PreviousChar(s, before);
    if (IsCaseIgnorable(CharAt(s, before))) continue;
    if (!IsCased(CharAt(s, before))) return false;
    follows_letter = true;
  }
  if (!follows_letter) return false;
  for (size_t after = pos + CharLength(s, pos); after < s.size(); after += CharLength(s, after)) {
    if (IsCaseIgnorable(CharAt(s, after))) continue;
    return !IsCased(CharAt(s, after));
  }
  return true;
}

void AppendUpper(char32_t c, std::string* out) {
  if (c < 0x80) {
    out->push_back(c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : static_cast<char>(c));
  } else if (!AppendMapped(kUpperRuns, kUpperSpecials, c, out)) {
    AppendUtf8(c, out);
  }
}

void AppendLower(absl::string_view s, size_t pos, std::string* out) {
  const char32_t c = CharAt(s, pos);
  if (c < 0x80) {
    out->push_back(c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : static_cast<char>(c));
  } else if (c == 0x3A3 && IsFinalSigma(s, pos)) {
    AppendUtf8(0x3C2, out);
  } else if (!AppendMapped(kLowerRuns, kLowerSpecials, c, out)) {
    AppendUtf8(c, out);
  }
}

}  // namespace

size_t CountChars(absl::string_view s) {
  return static_cast<size_t>(std::count_if(s.begin(), s.end(), [](char c) { return !IsContinuation(c); }));
}

size_t PreviousChar(absl::string_view s, size_t end) {
  do {
    --end;
  } while (IsContinuation(s[end]));
  return end;
}

bool IsSpace(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool IsLineBreak(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

bool IsPrintable(char32_t c) {
  if (c >= 0x20 && c < 0x7F) return true;
  for (const CharRange& range : kNotPrintable) {
    if (c >= range.first && c <= range.last) return false;
  }
  return true;
}

std::string ToUpper(absl::string_view s) {
  std::string out;
  for (size_t pos = 0; pos < s.size(); pos += CharLength(s, pos)) AppendUpper(CharAt(s, pos), &out);
  return out;
}

std::string ToLower(absl::string_view s) {
  std::string out;
  for (size_t pos = 0; pos < s.size(); pos += CharLength(s, pos)) AppendLower(s, pos, &out);
  return out;
}

std::string LowerAt(absl::string_view s, size_t pos) {
  std::string out;
  AppendLower(s, pos, &out);
  return out;
}

std::string ToTitle(absl::string_view s) {
  std::string out;
  for (size_t pos = 0; pos < s.size(); pos += CharLength(s, pos)) {
    if (!AppendSpecial(kTitleSpecials, CharAt(s, pos), &out)) AppendUpper(CharAt(s, pos), &out);
  }
  return out;
}

std::string SwapCase(absl::string_view s) {
  std::string out;
  for (size_t pos = 0; pos < s.size(); pos += CharLength(s, pos)) {
    const char32_t c = CharAt(s, pos);
    if (IsUppercase(c)) {
      AppendLower(s, pos, &out);
    } else if (IsLowercase(c)) {
      AppendUpper(c, &out);
    } else {
      AppendUtf8(c, &out);
    }
  }
  return out;
}

std::string FoldCase(absl::string_view s) {
  std::string out;
  for (size_t pos = 0; pos < s.size(); pos += CharLength(s, pos)) {
    const absl::string_view c = s.substr(pos, CharLength(s, pos));  // alone: folding knows no final sigma
    if (!AppendSpecial(kFoldSpecials, CharAt(s, pos), &out)) AppendLower(c, 0, &out);
  }
  return out;
}

bool IsAlpha(char32_t c) {
  const utf8proc_category_t category = Category(c);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool IsDecimal(char32_t c) { return Category(c) == UTF8PROC_CATEGORY_ND; }
bool IsDigit(char32_t c) { return IsDecimal(c) || In(kOtherDigits, c); }
bool IsNumeric(char32_t c) {
  const utf8proc_category_t category = Category(c);
  return category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL || category == UTF8PROC_CATEGORY_NO ||
         In(kOtherNumbers, c);
}
bool IsAlnum(char32_t c) { return IsAlpha(c) || IsNumeric(c); }
bool IsLowercase(char32_t c) { return Category(c) == UTF8PROC_CATEGORY_LL || In(kOtherLowercase, c); }
bool IsUppercase(char32_t c) { return Category(c) == UTF8PROC_CATEGORY_LU || In(kOtherUppercase, c); }
bool IsTitlecase(char32_t c) { return Category(c) == UTF8PROC_CATEGORY_LT; }

}  // namespace sluice::jinja
