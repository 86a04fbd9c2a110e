#include "engine/io/strict_json.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/parse_json.h"
#include "engine/base/quote.h"

namespace sluice {

std::string StrictJson::PlaceOf(uint64_t position) const {
  if (offset_ > 0) return absl::StrCat("offset ", offset_ + position);
  return LineAndColumn(text_, position);
}

absl::Status StrictJson::Read(absl::string_view text) {
  text_ = text;
  const auto damaged = [&](uint64_t position, absl::string_view problem) {
    return absl::InvalidArgumentError(absl::StrCat(name_, ": ", PlaceOf(position), ": ", problem));
  };
  if (text.empty() || text[0] != '{') {
    return damaged(0, absl::StrCat("expected a JSON object, found ", Quote(text.substr(0, 8))));
  }
  // The parser takes a zero byte for the end of the text and would not look at what follows.
  if (const size_t zero = text.find('\0'); zero != absl::string_view::npos) {
    return damaged(zero, "expected JSON, found a zero byte");
  }
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), this) && status_.ok()) {
    return damaged(0, "expected a JSON object");
  }
  return status_;
}

bool StrictJson::number_integer(int64_t value) { return Unexpected(absl::StrCat(value)); }
bool StrictJson::number_unsigned(uint64_t value) { return Unexpected(absl::StrCat(value)); }
bool StrictJson::number_float(double, const std::string& text) { return Unexpected(Quote(text)); }
bool StrictJson::string(std::string& value) { return Unexpected(Quote(value)); }

bool StrictJson::parse_error(size_t position, const std::string& last_token, const nlohmann::json::exception& error) {
  if (!status_.ok()) return false;
  // Counted from 1.
  const std::string place = PlaceOf(position > 0 ? position - 1 : 0), where = Where();
  return Refuse(
      absl::InvalidArgumentError(absl::StrCat(name_, ": ", place, where.empty() ? "" : ", ", where,
                                              ": not valid JSON in UTF-8: ", JsonProblem(error, last_token))));
}

bool StrictJson::Unexpected(absl::string_view found) {
  return Refuse(absl::StrCat("found ", found, ", expected ", Expected()));
}

bool StrictJson::Refuse(absl::string_view problem) {
  const std::string where = Where();
  return Refuse(absl::InvalidArgumentError(absl::StrCat(name_, ": ", where, where.empty() ? "" : ": ", problem)));
}

bool StrictJson::Refuse(absl::Status status) {
  status_ = std::move(status);
  return false;
}

}  // namespace sluice
