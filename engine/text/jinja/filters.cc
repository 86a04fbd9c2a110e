// The filters of Jinja: `x | name`.
#include "engine/text/jinja/filters.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "engine/base/status_macros.h"

namespace sluice::jinja {

absl::StatusOr<Value> Lookup(Value item, const Value* attribute, Heap& heap) {
  if (attribute == nullptr || attribute->is(Kind::kNone)) return item;
  if (attribute->IsInteger()) return GetItem(item, *attribute, heap);
  if (!attribute->is(Kind::kString))
    return absl::InvalidArgumentError("an attribute is named by a string or an integer");
  for (absl::string_view part : absl::StrSplit(attribute->AsView(), '.')) {
    int64_t index = 0;
    Value key = Value::Int(0);
    if (!part.empty() && part.find_first_not_of("0123456789") == absl::string_view::npos &&
        absl::SimpleAtoi(part, &index)) {
      key = Value::Int(index);
    } else {
      SLUICE_ASSIGN_OR_RETURN(key, heap.NewString(part, Origin::kTemplate));
    }
    SLUICE_ASSIGN_OR_RETURN(item, GetItem(item, key, heap));
  }
  return item;
}

const Builtin* FindFilter(absl::string_view name) {
  for (const absl::Span<const Builtin> table : {TextFilters(), NumberFilters(), ListFilters()}) {
    for (const Builtin& filter : table) {
      if (filter.name == name) return &filter;
    }
  }
  return nullptr;
}

}  // namespace sluice::jinja
