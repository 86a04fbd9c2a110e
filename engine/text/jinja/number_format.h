// Numbers as Python's format() and its % operator write them, before padding.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "engine/text/jinja/value.h"

namespace sluice::jinja {

inline constexpr int64_t kMaxFloatPrecision = 1'000;

// What stands before the padding that '=' puts in (sign, then "0x"), and after it.
struct NumberText {
  std::string sign;
  std::string prefix;
  std::string digits;

  size_t size() const { return sign.size() + prefix.size() + digits.size(); }
};

struct NumberStyle {
  char sign = '-';                // '+' or ' ' for numbers that are not negative
  bool alternate = false;         // '#'
  bool no_negative_zero = false;  // 'z': no sign before what is rounded to zero
  int64_t precision = -1;         // -1: the type's own
  char type = 'd';
};

// Types b, o, x, X and d. INVALID_ARGUMENT for an integer that is too large. REQUIRES: IsWholeNumber().
NumberText FormatInteger(const Value& integer, const NumberStyle& style);
// Types e, E, f, F, g, G, %, and '\0' for what str() writes (in so many digits, if there is a precision).
// INVALID_ARGUMENT for a precision beyond kMaxFloatPrecision.
absl::StatusOr<NumberText> FormatFloatNumber(double d, const NumberStyle& style);

// The digits before the point in groups of three, or of four if they are not decimal, with `separator` between them;
// with leading zeros up to `width` characters.
void GroupDigits(char separator, bool decimal, int64_t width, std::string* digits);

}  // namespace sluice::jinja
