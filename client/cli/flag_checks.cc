#include "client/cli/flag_checks.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/terminal.h"

namespace sluice::cli {
namespace {

std::string Found(const std::string& text, absl::string_view expected) {
  return absl::StrCat("found '", Printable(text), "', expected ", expected);
}

bool IsWholeNumber(const std::string& text, int64_t min, uint64_t max) {
  if (text.empty() || absl::ascii_isspace(text.front()) || absl::ascii_isspace(text.back())) return false;
  if (text.front() == '-') {
    int64_t value = 0;
    return absl::SimpleAtoi(text, &value) && value >= min && (value < 0 || uint64_t(value) <= max);
  }
  uint64_t value = 0;
  return absl::SimpleAtoi(text, &value) && value <= max && (min < 0 || value >= uint64_t(min));
}

FlagCheck NumberBetween(double min, double max, bool open, const std::string& expected) {
  return [=](const std::string& text) -> std::string {
    double value = 0;
    const bool good = absl::SimpleAtod(text, &value) && (open ? value > min : value >= min) && value <= max;
    return good ? "" : Found(text, expected);
  };
}

}  // namespace

FlagCheck WholeNumber(int64_t min, uint64_t max) {
  return [=](const std::string& text) -> std::string {
    if (IsWholeNumber(text, min, max)) return "";
    return Found(text, absl::StrCat("a whole number from ", min, " to ", max));
  };
}

FlagCheck Number(double min, double max) {
  return NumberBetween(min, max, false, absl::StrCat("a number from ", min, " to ", max));
}

FlagCheck NumberAbove(double min, double max) {
  return NumberBetween(min, max, true, absl::StrCat("a number above ", min, " and up to ", max));
}

FlagCheck OneOf(std::vector<std::string> values) {
  return [values = std::move(values)](const std::string& text) -> std::string {
    if (std::find(values.begin(), values.end(), text) != values.end()) return "";
    return Found(text, absl::StrCat("one of ", absl::StrJoin(values, ", ")));
  };
}

std::string CheckUtf8(const std::string& text) {
  return IsValidUtf8(text) ? ""
                           : absl::StrCat("found ", text.size(), " bytes that are not valid UTF-8, expected UTF-8");
}

std::string Decimal(std::string text) {
  const size_t sign = !text.empty() && (text[0] == '-' || text[0] == '+') ? 1 : 0;
  const size_t digits = text.find_first_not_of('0', sign);
  if (text.find_first_not_of("0123456789", sign) != std::string::npos || text.size() == sign) return text;
  const std::string number = digits == std::string::npos ? "0" : text.substr(digits);
  return (text[0] == '-' && number != "0" ? "-" : "") + number;
}

}  // namespace sluice::cli
