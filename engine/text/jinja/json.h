// JSON in and out of template values, as Python's json module does it.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/text/jinja/value.h"

namespace sluice::jinja {

// Object keys keep their order (of a repeated key the first place and the last value); integers stay exact. All strings
// and scalars get `origin`, and no method of a template changes the lists and dicts. INVALID_ARGUMENT with line and
// column for text that is not JSON or nests deeper than Limits::max_nesting, or for an integer of more digits than
// kMaxIntegerDigits (big_int.h). RESOURCE_EXHAUSTED: the values take more memory than the heap's budget has.
absl::StatusOr<Value> FromJson(absl::string_view json, Origin origin, Heap& heap);

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool pretty = false;  // items on lines of their own, indented by `indent`
  Text indent;
  Text item_separator;  // ", ", or "," when pretty
  Text key_separator;   // ": "
};

// json.dumps: appends to `out`. INVALID_ARGUMENT for what has no JSON form (undefined, functions, ...).
absl::Status ToJson(const Value& value, const JsonStyle& style, Heap& heap, TextBuilder& out);

}  // namespace sluice::jinja
