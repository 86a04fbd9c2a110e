// Integers of any size, as Python has them: Kind::kInt while they fit into 64 bits, else Kind::kBigInt, whose text
// holds the decimal digits. Larger ones than kMaxIntegerDigits are refused, as Python refuses to print them.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/text/jinja/ast.h"
#include "engine/text/jinja/value.h"

namespace sluice::jinja {

inline constexpr size_t kMaxIntegerDigits = 4300;

// An integer from its digits in base 2 to 36, with a sign or without; undefined if the text is none.
// INVALID_ARGUMENT if it is too large.
absl::StatusOr<Value> ParseInteger(absl::string_view digits, int base, Origin origin, Heap& heap);
// The whole part of a float. INVALID_ARGUMENT for infinity and NaN.
absl::StatusOr<Value> IntegerFromFloat(double d, Origin origin, Heap& heap);

// REQUIRES for all below: operands of Value::IsWholeNumber(), of any size.
absl::StatusOr<Value> IntegerArithmetic(BinaryOp op, const Value& left, const Value& right, Heap& heap);
absl::StatusOr<Value> Negated(const Value& operand, Heap& heap);
// -1, 0 or 1.
int CompareIntegers(const Value& left, const Value& right);
// Exact, whatever the size of the integer; 2 if `d` is not a number.
int CompareIntegerWithFloat(const Value& integer, double d);
// The nearest float. INVALID_ARGUMENT if it is too large for one.
absl::StatusOr<double> NearestFloat(const Value& integer);
// The digits in base 2, 8, 10 or 16 (lower case), with a '-' in front of negative ones.
std::string IntegerDigits(const Value& integer, int base);

}  // namespace sluice::jinja
