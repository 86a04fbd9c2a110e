// Python's operators on template values. Undefined can be compared for equality, iterated (it is empty) and tested; all
// else with it is an error. Errors are INVALID_ARGUMENT in the words of what was attempted.
#pragma once

#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/text/jinja/ast.h"
#include "engine/text/jinja/value.h"

namespace sluice::jinja {

absl::StatusOr<Value> ApplyBinary(BinaryOp op, const Value& left, const Value& right, Heap& heap);
absl::StatusOr<Value> ApplyUnary(UnaryOp op, const Value& operand, Heap& heap);

absl::StatusOr<bool> Equal(const Value& left, const Value& right, Heap& heap);
// left < right; an error unless both are numbers, both strings or both lists.
absl::StatusOr<bool> Less(const Value& left, const Value& right, Heap& heap);
// item in container.
absl::StatusOr<bool> Contains(const Value& container, const Value& item, Heap& heap);
absl::StatusOr<bool> Compare(CompareOp op, const Value& left, const Value& right, Heap& heap);

// object[key] without the methods that an object also has; undefined if it is not there.
absl::StatusOr<Value> FindItem(const Value& object, const Value& key, Heap& heap);
// object[begin:end:step].
absl::StatusOr<Value> TakeSlice(const Value& object, std::optional<int64_t> begin, std::optional<int64_t> end,
                                std::optional<int64_t> step, Heap& heap);

// What iterating gives: items, characters, keys. An iterator is empty afterwards.
absl::StatusOr<std::vector<Value>> Iterate(const Value& value, Heap& heap);

// INVALID_ARGUMENT "'name' is undefined".
absl::Status UndefinedError(const Value& undefined);

}  // namespace sluice::jinja
