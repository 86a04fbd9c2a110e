#include "engine/base/parse_json.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace sluice {

using Json = nlohmann::json;

absl::StatusOr<Json> ParseJsonObject(absl::string_view text, absl::string_view name) {
  constexpr int kMaxDepth = 64;
  const auto bad = [name](const auto&... what) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": ", what...));
  };
  if (const size_t zero = text.find('\0'); zero != absl::string_view::npos) {
    return bad("found a zero byte at ", zero, ", expected JSON");
  }
  bool too_deep = false;
  const auto note_depth = [&](int depth, Json::parse_event_t, Json&) {
    too_deep |= depth > kMaxDepth;
    return true;
  };
  Json json = Json::parse(text.begin(), text.end(), note_depth, false);
  if (json.is_discarded()) return bad("not valid JSON");
  if (!json.is_object()) return bad("found JSON of type ", json.type_name(), ", expected an object");
  if (too_deep) return bad("nested deeper than ", kMaxDepth);
  return json;
}

}  // namespace sluice
