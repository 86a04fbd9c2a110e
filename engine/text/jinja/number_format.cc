#include "engine/text/jinja/number_format.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/text/jinja/big_int.h"
#include "engine/text/jinja/python_format.h"

namespace sluice::jinja {
namespace {

std::string Printf(const char* format, int precision, double d) {
  std::string text(static_cast<size_t>(precision) + 400, '\0');
  text.resize(static_cast<size_t>(std::snprintf(text.data(), text.size(), format, precision, d)));
  return text;
}

// str() in at most `precision` digits: as %g, but always with a point or an exponent.
std::string ShortDigits(double d, int precision) {
  const std::string text = Printf("%.*e", std::max(precision, 1) - 1, d);
  const size_t e = text.find('e');
  const int exponent = std::atoi(text.c_str() + e + 1);
  if (exponent + 1 > -4 && exponent + 1 < std::max(precision, 1)) {
    const std::string fixed = Printf("%.*f", std::max(std::max(precision, 1) - 1 - exponent, 0), d);
    std::string digits = fixed.substr(0, fixed.find_last_not_of('0') + 1);
    if (fixed.find('.') == std::string::npos) digits = fixed + ".0";
    if (digits.back() == '.') digits += "0";
    return digits;
  }
  std::string mantissa = text.substr(0, e);
  if (mantissa.find('.') != std::string::npos) {
    mantissa.erase(mantissa.find_last_not_of('0') + 1);
    if (mantissa.back() == '.') mantissa.pop_back();
  }
  return mantissa + text.substr(e);
}

std::string SignOf(bool negative, char style) {
  if (negative) return "-";
  return style == '+' || style == ' ' ? std::string(1, style) : "";
}

}  // namespace

NumberText FormatInteger(const Value& integer, const NumberStyle& style) {
  const int base = style.type == 'b' ? 2 : style.type == 'o' ? 8 : absl::ascii_tolower(style.type) == 'x' ? 16 : 10;
  NumberText text;
  text.digits = IntegerDigits(integer, base);
  const bool negative = text.digits[0] == '-';
  if (negative) text.digits.erase(0, 1);
  text.sign = SignOf(negative, style.sign);
  if (style.alternate && base != 10) text.prefix = {'0', style.type};
  if (style.type == 'X') absl::AsciiStrToUpper(&text.digits);
  if (style.precision > static_cast<int64_t>(text.digits.size())) {
    text.digits.insert(0, static_cast<size_t>(style.precision) - text.digits.size(), '0');
  }
  return text;
}

absl::StatusOr<NumberText> FormatFloatNumber(double d, const NumberStyle& style) {
  if (style.precision > kMaxFloatPrecision) {
    return absl::InvalidArgumentError(
        absl::StrCat("found a precision of ", style.precision, ", expected at most ", kMaxFloatPrecision));
  }
  NumberText text;
  text.sign = SignOf(std::signbit(d) && !std::isnan(d), style.sign);
  const bool percent = style.type == '%';
  const bool upper = absl::ascii_isupper(style.type);
  const double magnitude = std::isnan(d) ? d : std::fabs(d) * (percent ? 100 : 1);
  const int precision = style.precision < 0 ? 6 : static_cast<int>(style.precision);
  if (!std::isfinite(magnitude)) {
    text.digits = std::isnan(magnitude) ? (upper ? "NAN" : "nan") : (upper ? "INF" : "inf");
  } else if (style.type == '\0') {
    text.digits = style.precision < 0 ? FormatFloat(magnitude) : ShortDigits(magnitude, precision);
  } else {
    const char type = percent ? 'f' : style.type;
    const char format[] = {'%', '#', '.', '*', type, '\0'};
    const char plain[] = {'%', '.', '*', type, '\0'};
    text.digits = Printf(style.alternate ? format : plain, precision, magnitude);
  }
  if (style.no_negative_zero && text.sign == "-" && text.digits.find_first_of("123456789in") == std::string::npos) {
    text.sign = SignOf(false, style.sign);
  }
  if (percent) text.digits += '%';
  return text;
}

void GroupDigits(char separator, bool decimal, int64_t width, std::string* digits) {
  const size_t group = decimal ? 3 : 4;
  const size_t whole =
      std::min(digits->find_first_not_of(decimal ? "0123456789" : "0123456789abcdefABCDEF"), digits->size());
  const std::string rest = digits->substr(whole);
  std::string all = digits->substr(0, whole);
  // n digits in groups take n + (n - 1) / group characters.
  size_t n = std::max<size_t>(all.size(), 1);
  while (static_cast<int64_t>(n + (n - 1) / group + rest.size()) < width) ++n;
  all.insert(0, n - all.size(), '0');
  std::string grouped;
  for (size_t i = 0; i < all.size(); ++i) {
    if (i > 0 && (all.size() - i) % group == 0) grouped.push_back(separator);
    grouped.push_back(all[i]);
  }
  *digits = grouped + rest;
}

}  // namespace sluice::jinja
