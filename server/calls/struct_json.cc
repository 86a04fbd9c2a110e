#include "server/calls/struct_json.h"

#include <cmath>
#include <cstdint>
#include <map>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/text/jinja/python_format.h"
#include "server/calls/status.h"

namespace sluice {
namespace {

using google::protobuf::Value;

void AppendString(absl::string_view text, std::string* out) {
  out->push_back('"');
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out->push_back('\\');
      out->push_back(c);
    } else if (static_cast<unsigned char>(c) < 0x20) {
      absl::StrAppend(out, "\\u00", absl::Hex(static_cast<unsigned char>(c), absl::kZeroPad2));
    } else {
      out->push_back(c);
    }
  }
  out->push_back('"');
}

absl::Status AppendNumber(absl::string_view place, double number, std::string* out) {
  constexpr double kExact = double(int64_t{1} << 53);
  if (!std::isfinite(number)) {
    return InvalidField(place,
                        absl::StrCat("found ", jinja::FormatFloat(number), ", expected a number that JSON can say"));
  }
  if (number == std::trunc(number) && std::fabs(number) <= kExact) {
    absl::StrAppend(out, int64_t(number));
  } else {
    absl::StrAppend(out, jinja::FormatFloat(number));
  }
  return absl::OkStatus();
}

// Protobuf's parser bounds the nesting.
absl::Status AppendStruct(absl::string_view place, const google::protobuf::Struct& value, std::string* out);

absl::Status AppendValue(absl::string_view place, const Value& value, std::string* out) {
  switch (value.kind_case()) {
    case Value::kNullValue:
      out->append("null");
      return absl::OkStatus();
    case Value::kBoolValue:
      out->append(value.bool_value() ? "true" : "false");
      return absl::OkStatus();
    case Value::kNumberValue:
      return AppendNumber(place, value.number_value(), out);
    case Value::kStringValue:
      AppendString(value.string_value(), out);
      return absl::OkStatus();
    case Value::kStructValue:
      return AppendStruct(place, value.struct_value(), out);
    case Value::kListValue:
      out->push_back('[');
      for (int i = 0; i < value.list_value().values_size(); ++i) {
        if (i > 0) out->push_back(',');
        SLUICE_RETURN_IF_ERROR(AppendValue(absl::StrCat(place, "[", i, "]"), value.list_value().values(i), out));
      }
      out->push_back(']');
      return absl::OkStatus();
    case Value::KIND_NOT_SET:
      break;
  }
  return InvalidField(place, "found a value of no kind, expected one (null_value for null)");
}

absl::Status AppendStruct(absl::string_view place, const google::protobuf::Struct& value, std::string* out) {
  std::map<absl::string_view, const Value*> sorted;
  for (const auto& [key, field] : value.fields()) sorted.emplace(key, &field);
  out->push_back('{');
  for (const auto& [key, field] : sorted) {
    if (out->back() != '{') out->push_back(',');
    AppendString(key, out);
    out->push_back(':');
    SLUICE_RETURN_IF_ERROR(AppendValue(absl::StrCat(place, ".", key), *field, out));
  }
  out->push_back('}');
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> StructAsJson(absl::string_view field, const google::protobuf::Struct& value) {
  std::string json;
  SLUICE_RETURN_IF_ERROR(AppendStruct(field, value, &json));
  return json;
}

}  // namespace sluice
