// Python's two languages of formatted text. What a value of a user prints stays that user's; padding is the template's.
#pragma once

#include "absl/status/statusor.h"
#include "engine/text/jinja/builtins.h"
#include "engine/text/jinja/value.h"

namespace sluice::jinja {

// '%05.1f and %(name)s' % arguments: a tuple, a dict or one value. REQUIRES: `format` is a string.
absl::StatusOr<Value> PercentFormat(const Value& format, const Value& arguments, Heap& heap);

// '{:>8} and {name[key]!r}'.format(...). REQUIRES: `format` is a string.
absl::StatusOr<Value> BraceFormat(const Value& format, const CallArguments& arguments, Heap& heap);

}  // namespace sluice::jinja
