// Filters that give numbers: int, round, length, sum, ...
#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/status_macros.h"
#include "engine/text/jinja/big_int.h"
#include "engine/text/jinja/filters.h"
#include "engine/text/jinja/operators.h"
#include "engine/text/jinja/python_format.h"
#include "engine/text/jinja/strings.h"
#include "engine/text/jinja/unicode.h"

namespace sluice::jinja {
namespace {

using Result = absl::StatusOr<Value>;

Result Default(const Invocation& call) {
  if (!call.self.is(Kind::kUndefined) && !(Flag(call, 1) && !IsTrue(call.self))) return call.self;
  return call.args[0] != nullptr ? Result(*call.args[0]) : call.heap().NewString("", Origin::kTemplate);
}

Result Length(const Invocation& call) {
  size_t length = 0;
  switch (call.self.kind()) {
    case Kind::kUndefined:
      break;
    case Kind::kString:
      length = call.self.AsView().size();
      if (!call.self.AsText().ascii) {
        SLUICE_RETURN_IF_ERROR(call.context.budget().Scan(length));
        length = CountChars(call.self.AsView());
      }
      break;
    case Kind::kDict:
      length = call.self.AsDict().size();
      break;
    case Kind::kLoop:
      length = call.self.AsLoop().items->size();
      break;
    case Kind::kList:
      length = call.self.AsList().items.size();
      if (call.self.AsList().kind != ListKind::kIterator) break;
      [[fallthrough]];
    default:
      return absl::InvalidArgumentError(absl::StrCat("a ", TypeName(call.self), " has no length"));
  }
  return Value::Int(static_cast<int64_t>(length));
}

// int(text) and float(text) of Python allow whitespace around and single underscores between digits; the text without
// both, or nullopt.
std::optional<std::string> PlainNumber(absl::string_view text) {
  while (!text.empty() && IsSpace(CharAt(text, 0))) text.remove_prefix(CharLength(text, 0));
  while (!text.empty() && IsSpace(CharAt(text, PreviousChar(text, text.size())))) {
    text = text.substr(0, PreviousChar(text, text.size()));
  }
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      plain.push_back(text[i]);
    } else if (i == 0 || i + 1 == text.size() || !absl::ascii_isalnum(text[i - 1]) ||
               !absl::ascii_isalnum(text[i + 1])) {
      return std::nullopt;
    }
  }
  return plain;
}

// int(text, base); undefined if it is no integer.
Result ParseInt(const Text& text, int64_t base, Heap& heap) {
  const std::optional<std::string> plain = PlainNumber(text.bytes);
  if (!plain || plain->empty()) return Value();
  const bool negative = plain->front() == '-';
  absl::string_view digits = *plain;
  if (digits[0] == '-' || digits[0] == '+') digits.remove_prefix(1);
  if (digits.size() > 2 && digits[0] == '0') {
    const char prefix = absl::ascii_tolower(static_cast<unsigned char>(digits[1]));
    const int64_t prefixed = prefix == 'x' ? 16 : prefix == 'o' ? 8 : prefix == 'b' ? 2 : 0;
    if (prefixed != 0 && (base == prefixed || base == 0)) {
      base = prefixed;
      digits.remove_prefix(2);
    }
  }
  if (base == 0) {
    if (digits.size() > 1 && digits[0] == '0' && digits.find_first_not_of('0') != absl::string_view::npos)
      return Value();
    base = 10;
  }
  if (digits.empty() || digits[0] == '-' || digits[0] == '+') return Value();
  return ParseInteger(absl::StrCat(negative ? "-" : "", digits), static_cast<int>(base), text.origin(), heap);
}

// float(value); nullopt if it is none.
absl::StatusOr<std::optional<double>> ParseFloat(const Value& value) {
  if (value.IsWholeNumber()) {
    SLUICE_ASSIGN_OR_RETURN(const double d, NearestFloat(value));
    return std::optional<double>(d);
  }
  if (value.is(Kind::kFloat)) return std::optional<double>(value.AsFloat());
  if (!value.is(Kind::kString)) return std::optional<double>();
  const std::optional<std::string> plain = PlainNumber(value.AsView());
  double d = 0;
  const bool hexadecimal = plain && absl::AsciiStrToLower(*plain).find('x') != std::string::npos;
  if (!plain || hexadecimal || !absl::SimpleAtod(*plain, &d)) return std::optional<double>();
  return std::optional<double>(d);
}

Result Int(const Invocation& call) {
  const Value& v = call.self;
  const Value otherwise = call.args[0] != nullptr ? *call.args[0] : Value::Int(0);
  const int64_t base = call.args[1] != nullptr && call.args[1]->IsInteger() ? call.args[1]->AsInt() : 10;
  if (v.is(Kind::kUndefined)) return UndefinedError(v);
  if (v.is(Kind::kBigInt)) return v;
  if (v.IsInteger()) return Value::Int(v.AsInt()).WithOrigin(v.origin());
  if (v.is(Kind::kString) && (base == 0 || (base >= 2 && base <= 36))) {
    SLUICE_ASSIGN_OR_RETURN(const Value integer, ParseInt(v.AsText(), base, call.heap()));
    if (!integer.is(Kind::kUndefined)) return integer;
  }
  SLUICE_ASSIGN_OR_RETURN(const std::optional<double> d, ParseFloat(v));
  if (!d || std::isnan(*d)) return otherwise;
  if (std::isinf(*d) && v.is(Kind::kString)) return otherwise;
  return IntegerFromFloat(*d, OriginOf(v), call.heap());
}

Result Float(const Invocation& call) {
  if (call.self.is(Kind::kUndefined)) return UndefinedError(call.self);
  SLUICE_ASSIGN_OR_RETURN(const std::optional<double> d, ParseFloat(call.self));
  if (d) return Value::Float(*d).WithOrigin(OriginOf(call.self));
  return call.args[0] != nullptr ? *call.args[0] : Value::Float(0.0);
}

Result Abs(const Invocation& call) {
  SLUICE_ASSIGN_OR_RETURN(const Value number, ApplyUnary(UnaryOp::kPlus, call.self, call.heap()));
  if (number.is(Kind::kFloat)) return Value::Float(std::fabs(number.AsFloat())).WithOrigin(number.origin());
  return CompareIntegers(number, Value::Int(0)) < 0 ? ApplyUnary(UnaryOp::kMinus, number, call.heap()) : Result(number);
}

// The nearest multiple of 10^-precision, ties to even, as Python's round() has it for floats.
double RoundedTo(double d, int64_t precision) {
  if (!std::isfinite(d) || precision > 323) return d;
  if (precision < -308) return std::copysign(0.0, d);
  if (precision >= 0) {
    // The shortest digits that are nearest: through the decimal text, whose rounding is exact.
    double rounded = d;
    return absl::SimpleAtod(absl::StrFormat("%.*f", static_cast<int>(precision), d), &rounded) ? rounded : d;
  }
  const double unit = std::pow(10.0, static_cast<double>(-precision));
  const double scaled = d / unit;
  return std::nearbyint(scaled) * unit;
}

constexpr int64_t kMaxPower = 4'400;  // beyond any integer's digits

// An integer to the nearest multiple of 10^power, ties to the even one.
Result RoundedInteger(const Value& integer, int64_t power, Heap& heap) {
  SLUICE_ASSIGN_OR_RETURN(const Value unit,
                          IntegerArithmetic(BinaryOp::kPower, Value::Int(10), Value::Int(power), heap));
  SLUICE_ASSIGN_OR_RETURN(Value quotient, IntegerArithmetic(BinaryOp::kFloorDivide, integer, unit, heap));
  SLUICE_ASSIGN_OR_RETURN(const Value rest, IntegerArithmetic(BinaryOp::kModulo, integer, unit, heap));
  SLUICE_ASSIGN_OR_RETURN(const Value doubled, IntegerArithmetic(BinaryOp::kMultiply, rest, Value::Int(2), heap));
  SLUICE_ASSIGN_OR_RETURN(const Value parity, IntegerArithmetic(BinaryOp::kModulo, quotient, Value::Int(2), heap));
  const int order = CompareIntegers(doubled, unit);
  if (order > 0 || (order == 0 && parity.AsInt() == 1)) {
    SLUICE_ASSIGN_OR_RETURN(quotient, IntegerArithmetic(BinaryOp::kAdd, quotient, Value::Int(1), heap));
  }
  return IntegerArithmetic(BinaryOp::kMultiply, quotient, unit, heap);
}

// round(precision=0, method='common').
Result Round(const Invocation& call) {
  int64_t precision = 0;
  if (call.args[0] != nullptr) {
    if (!call.args[0]->IsInteger()) return absl::InvalidArgumentError("round wants an integer as its precision");
    precision = call.args[0]->AsInt();
  }
  const absl::string_view method = call.args[1] == nullptr           ? "common"
                                   : call.args[1]->is(Kind::kString) ? call.args[1]->AsView()
                                                                     : "";
  if (method != "common" && method != "ceil" && method != "floor") {
    return absl::InvalidArgumentError("round: the method is 'common', 'ceil' or 'floor'");
  }
  if (call.self.is(Kind::kUndefined)) return UndefinedError(call.self);
  if (!call.self.IsNumber() && !call.self.is(Kind::kBigInt)) {
    return absl::InvalidArgumentError(absl::StrCat("round wants a number, found ", TypeName(call.self)));
  }
  if (method == "common") {
    // round(int, n) of Python stays an integer, whatever the precision; tens are rounded to even.
    if (call.self.IsWholeNumber()) {
      if (precision >= 0) return call.self.is(Kind::kBool) ? Value::Int(call.self.AsInt()) : call.self;
      if (precision < -kMaxPower) return Value::Int(0).WithOrigin(OriginOf(call.self));
      return RoundedInteger(call.self, -precision, call.heap());
    }
    return Value::Float(RoundedTo(call.self.AsFloat(), precision)).WithOrigin(call.self.origin());
  }
  SLUICE_ASSIGN_OR_RETURN(const std::optional<double> d, ParseFloat(call.self));
  const double unit = std::pow(10.0, static_cast<double>(std::clamp<int64_t>(precision, -308, 308)));
  const double scaled = *d * unit;
  if (!std::isfinite(scaled)) return absl::InvalidArgumentError("round: the number is too large");
  return Value::Float((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit)
      .WithOrigin(OriginOf(call.self));
}

Result Sum(const Invocation& call) {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(call.self, call.heap()));
  Value sum = call.args[1] != nullptr ? *call.args[1] : Value::Int(0);
  if (sum.is(Kind::kString)) return absl::InvalidArgumentError("sum cannot add strings; use join");
  for (const Value& item : items) {
    SLUICE_RETURN_IF_ERROR(call.context.budget().Spend(1));
    SLUICE_ASSIGN_OR_RETURN(const Value addend, Lookup(item, call.args[0], call.heap()));
    SLUICE_ASSIGN_OR_RETURN(sum, ApplyBinary(BinaryOp::kAdd, sum, addend, call.heap()));
  }
  return sum;
}

Result WordCount(const Invocation& call) {
  SLUICE_ASSIGN_OR_RETURN(const Value text, ToStr(call.self, call.heap()));
  const absl::string_view s = text.AsView();
  SLUICE_RETURN_IF_ERROR(call.context.budget().Visit(s.size()));
  int64_t words = 0;
  bool in_word = false;
  for (size_t pos = 0; pos < s.size(); pos += CharLength(s, pos)) {
    const bool is_word = s[pos] == '_' || IsAlnum(CharAt(s, pos));
    words += is_word && !in_word ? 1 : 0;
    in_word = is_word;
  }
  return Value::Int(words);
}

Result FileSizeFormat(const Invocation& call) {
  static constexpr absl::string_view kPrefixes = "kMGTPEZY";
  if (call.self.is(Kind::kUndefined)) return UndefinedError(call.self);
  SLUICE_ASSIGN_OR_RETURN(const std::optional<double> bytes, ParseFloat(call.self));
  if (!bytes) return absl::InvalidArgumentError("filesizeformat wants a number");
  const bool binary = call.args[0] != nullptr && IsTrue(*call.args[0]);
  const double base = binary ? 1024 : 1000;
  std::string text = "1 Byte";
  if (*bytes != 1 && *bytes < base) {
    SLUICE_ASSIGN_OR_RETURN(const Value whole, IntegerFromFloat(*bytes, Origin::kTemplate, call.heap()));
    text = absl::StrCat(IntegerDigits(whole, 10), " Bytes");
  } else if (*bytes != 1) {
    double unit = base * base;
    size_t i = 0;
    for (; i + 1 < kPrefixes.size() && *bytes >= unit; ++i) unit *= base;
    const std::string prefix = binary && i == 0 ? "K" : std::string(1, kPrefixes[i]);
    text = absl::StrFormat("%.1f %s%s", base * *bytes / unit, prefix, binary ? "iB" : "B");
  }
  return call.heap().NewString(text, OriginOf(call.self));
}

constexpr Builtin kNumberFilters[] = {
    {"abs", Abs},
    {"count", Length},
    {"d", Default, {"default_value", "boolean"}},
    {"default", Default, {"default_value", "boolean"}},
    {"filesizeformat", FileSizeFormat, {"binary"}},
    {"float", Float, {"default"}},
    {"int", Int, {"default", "base"}},
    {"length", Length},
    {"round", Round, {"precision", "method"}},
    {"sum", Sum, {"attribute", "start"}},
    {"wordcount", WordCount},
};

}  // namespace

absl::Span<const Builtin> NumberFilters() { return kNumberFilters; }

}  // namespace sluice::jinja
