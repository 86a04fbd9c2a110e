#include "engine/text/jinja/big_int.h"

#include <boost/multiprecision/cpp_int.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"

namespace sluice::jinja {
namespace {

using BigInt = boost::multiprecision::cpp_int;

constexpr unsigned kMaxBits = 14'285;  // no integer of kMaxIntegerDigits digits has more

absl::Status TooLarge() {
  return absl::InvalidArgumentError(absl::StrCat("an integer has more than ", kMaxIntegerDigits, " digits"));
}

unsigned Bits(const BigInt& i) { return i == 0 ? 0 : unsigned(boost::multiprecision::msb(abs(i))) + 1; }

BigInt ToBig(const Value& v) { return v.is(Kind::kBigInt) ? BigInt(std::string(v.AsView())) : BigInt(v.AsInt()); }

absl::StatusOr<Value> FromBig(const BigInt& i, Origin origin, Heap& heap) {
  if (i >= std::numeric_limits<int64_t>::min() && i <= std::numeric_limits<int64_t>::max()) {
    return Value::Int(i.convert_to<int64_t>()).WithOrigin(origin);
  }
  if (Bits(i) > kMaxBits) return TooLarge();
  const std::string digits = i.str();
  if (digits.size() - (i < 0 ? 1 : 0) > kMaxIntegerDigits) return TooLarge();
  return heap.NewBigInt(digits, origin);
}

Origin OriginOfResult(const Value& left, const Value& right) {
  return OriginOf(left) != Origin::kTemplate ? OriginOf(left) : OriginOf(right);
}

// m * 2^exponent, rounded once; `sticky`: bits below m were lost.
double Scaled(BigInt m, int exponent, bool sticky) {
  const int excess = int(Bits(m)) - 64;
  if (excess > 0) {
    const BigInt kept = m >> excess;
    sticky = sticky || (kept << excess) != m;
    m = kept;
    exponent += excess;
  }
  // 64 bits with the lost ones in the last round to 53 as the exact number would.
  return std::ldexp(double(m.convert_to<uint64_t>() | (sticky ? 1 : 0)), exponent);
}

// Division as Python has it for integers: the nearest float of the exact quotient.
absl::StatusOr<Value> TrueQuotient(const BigInt& a, const BigInt& b, Origin origin) {
  const bool negative = (a < 0) != (b < 0);
  const int shift = std::max(0, 66 + int(Bits(b)) - int(Bits(a)));
  const BigInt scaled = BigInt(abs(a)) << shift;
  const BigInt divisor = abs(b);
  const BigInt quotient = scaled / divisor;
  const double d = Scaled(quotient, -shift, quotient * divisor != scaled);
  if (std::isinf(d)) return absl::InvalidArgumentError("the quotient of integers is too large for a float");
  return Value::Float(negative ? -d : d).WithOrigin(origin);
}

absl::StatusOr<Value> BigPower(const BigInt& base, const BigInt& exponent, Origin origin, Heap& heap) {
  if (exponent < 0) {
    if (base == 0) return absl::InvalidArgumentError("zero cannot be raised to a negative power");
    return Value::Float(std::pow(base.convert_to<double>(), exponent.convert_to<double>())).WithOrigin(origin);
  }
  if (base == 0 || base == 1 || base == -1) {
    return FromBig(exponent == 0 || base == 1       ? BigInt(1)
                   : base == 0 || exponent % 2 == 1 ? base
                                                    : BigInt(1),
                   origin, heap);
  }
  // Each factor adds at least Bits(base) - 1 bits.
  if (exponent > kMaxBits || (Bits(base) - 1) * exponent.convert_to<unsigned>() > kMaxBits) return TooLarge();
  return FromBig(boost::multiprecision::pow(base, exponent.convert_to<unsigned>()), origin, heap);
}

absl::StatusOr<Value> BigArithmetic(BinaryOp op, const BigInt& a, const BigInt& b, Origin origin, Heap& heap) {
  switch (op) {
    case BinaryOp::kAdd:
      return FromBig(a + b, origin, heap);
    case BinaryOp::kSubtract:
      return FromBig(a - b, origin, heap);
    case BinaryOp::kMultiply:
      return FromBig(a * b, origin, heap);
    case BinaryOp::kPower:
      return BigPower(a, b, origin, heap);
    default:
      break;
  }
  if (b == 0) return absl::InvalidArgumentError("division by zero");
  if (op == BinaryOp::kDivide) return TrueQuotient(a, b, origin);
  // Python rounds down, cpp_int towards zero.
  BigInt quotient = a / b, rest = a % b;
  if (rest != 0 && (rest < 0) != (b < 0)) {
    quotient -= 1;
    rest += b;
  }
  return FromBig(op == BinaryOp::kModulo ? rest : quotient, origin, heap);
}

// What fits into 64 bits with its result; false if it does not, or is no matter for machine words.
bool SmallArithmetic(BinaryOp op, int64_t a, int64_t b, int64_t* result) {
  switch (op) {
    case BinaryOp::kAdd:
      return !__builtin_add_overflow(a, b, result);
    case BinaryOp::kSubtract:
      return !__builtin_sub_overflow(a, b, result);
    case BinaryOp::kMultiply:
      return !__builtin_mul_overflow(a, b, result);
    case BinaryOp::kFloorDivide:
    case BinaryOp::kModulo: {
      if (b == 0 || b == -1) return false;  // -1: the one quotient that overflows
      const bool adjust = a % b != 0 && (a % b < 0) != (b < 0);
      *result = op == BinaryOp::kModulo ? a % b + (adjust ? b : 0) : a / b - (adjust ? 1 : 0);
      return true;
    }
    default:
      return false;
  }
}

}  // namespace

absl::StatusOr<Value> ParseInteger(absl::string_view digits, int base, Origin origin, Heap& heap) {
  const bool negative = !digits.empty() && digits[0] == '-';
  if (!digits.empty() && (digits[0] == '-' || digits[0] == '+')) digits.remove_prefix(1);
  if (digits.empty()) return Value();
  if (digits.size() > kMaxBits) return TooLarge();
  SLUICE_RETURN_IF_ERROR(heap.budget().Spend(int64_t(digits.size() / 16 * (digits.size() / 64 + 1))));
  BigInt value = 0;
  for (const char c : digits) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'z' ? c - 'a' + 10
                      : c >= 'A' && c <= 'Z' ? c - 'A' + 10
                                             : 99;
    if (digit >= base) return Value();
    value = value * base + digit;
  }
  return FromBig(negative ? BigInt(-value) : value, origin, heap);
}

absl::StatusOr<Value> IntegerFromFloat(double d, Origin origin, Heap& heap) {
  if (std::isnan(d)) return absl::InvalidArgumentError("cannot make an integer of NaN");
  if (std::isinf(d)) return absl::InvalidArgumentError("cannot make an integer of infinity");
  return FromBig(BigInt(std::trunc(d)), origin, heap);
}

absl::StatusOr<Value> IntegerArithmetic(BinaryOp op, const Value& left, const Value& right, Heap& heap) {
  const Origin origin = OriginOfResult(left, right);
  int64_t small = 0;
  const bool both_small = left.IsInteger() && right.IsInteger();
  if (both_small && SmallArithmetic(op, left.AsInt(), right.AsInt(), &small)) {
    return Value::Int(small).WithOrigin(origin);
  }
  // Both exact as floats: then so is the rounding of their quotient.
  constexpr int64_t kExact = int64_t{1} << 53;
  const auto exact = [](const Value& v) { return v.AsInt() <= kExact && v.AsInt() >= -kExact; };
  if (both_small && op == BinaryOp::kDivide && right.AsInt() != 0 && exact(left) && exact(right)) {
    return Value::Float(double(left.AsInt()) / double(right.AsInt())).WithOrigin(origin);
  }
  const BigInt a = ToBig(left), b = ToBig(right);
  SLUICE_RETURN_IF_ERROR(
      heap.budget().Spend(1 + int64_t(Bits(a) / 64) * int64_t(Bits(b) / 64) / 16 + (Bits(a) + Bits(b)) / 64));
  return BigArithmetic(op, a, b, origin, heap);
}

absl::StatusOr<Value> Negated(const Value& operand, Heap& heap) {
  return IntegerArithmetic(BinaryOp::kSubtract, Value::Int(0), operand, heap);
}

int CompareIntegers(const Value& left, const Value& right) {
  if (left.IsInteger() && right.IsInteger()) {
    return left.AsInt() < right.AsInt() ? -1 : left.AsInt() > right.AsInt() ? 1 : 0;
  }
  const int order = ToBig(left).compare(ToBig(right));
  return order < 0 ? -1 : order > 0 ? 1 : 0;
}

int CompareIntegerWithFloat(const Value& integer, double d) {
  if (std::isnan(d)) return 2;
  if (std::isinf(d)) return d > 0 ? -1 : 1;
  const double whole = std::trunc(d);
  const int order = ToBig(integer).compare(BigInt(whole));
  if (order != 0) return order < 0 ? -1 : 1;
  return d > whole ? -1 : d < whole ? 1 : 0;
}

absl::StatusOr<double> NearestFloat(const Value& integer) {
  if (integer.IsInteger()) return double(integer.AsInt());
  const BigInt i = ToBig(integer);
  const double d = Scaled(abs(i), 0, false);
  if (std::isinf(d)) return absl::InvalidArgumentError("the integer is too large for a float");
  return i < 0 ? -d : d;
}

std::string IntegerDigits(const Value& integer, int base) {
  if (base == 10) return integer.IsInteger() ? absl::StrCat(integer.AsInt()) : std::string(integer.AsView());
  const BigInt i = ToBig(integer);
  BigInt rest = abs(i);
  std::string digits;
  do {
    digits.push_back("0123456789abcdef"[(rest % base).convert_to<int>()]);
    rest /= base;
  } while (rest != 0);
  if (i < 0) digits.push_back('-');
  return std::string(digits.rbegin(), digits.rend());
}

}  // namespace sluice::jinja
