#include "engine/io/strict_json.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/io/quote.h"

namespace sluice {

absl::Status StrictJson::Read(absl::string_view text) {
  const auto damaged = [&](uint64_t position, absl::string_view problem) {
    return absl::InvalidArgumentError(absl::StrCat(name_, ": offset ", offset_ + position, ": ", problem));
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

bool StrictJson::parse_error(size_t position, const std::string& last_token, const nlohmann::json::exception&) {
  if (!status_.ok()) return false;
  // Counted from 1.
  const uint64_t at = offset_ + (position > 0 ? position - 1 : 0);
  return Refuse(absl::InvalidArgumentError(
      absl::StrCat(name_, ": offset ", at, ": not valid JSON in UTF-8, after reading ", Quote(last_token))));
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
