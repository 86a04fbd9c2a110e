#include "engine/text/jinja/operators.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/text/jinja/big_int.h"
#include "engine/text/jinja/format.h"
#include "engine/text/jinja/strings.h"
#include "engine/text/jinja/unicode.h"

namespace sluice::jinja {
namespace {

absl::string_view Symbol(BinaryOp op) {
  static constexpr absl::string_view kSymbols[] = {"+", "-", "*", "/", "//", "%", "**"};
  return kSymbols[static_cast<int>(op)];
}

absl::Status Mismatch(absl::string_view symbol, const Value& left, const Value& right) {
  return absl::InvalidArgumentError(
      absl::StrCat("'", symbol, "' is not supported between ", TypeName(left), " and ", TypeName(right)));
}

bool IsSequence(const Value& v) { return v.is(Kind::kList) && v.AsList().kind <= ListKind::kGroup; }

absl::StatusOr<Value> FloatBinary(BinaryOp op, double a, double b) {
  switch (op) {
    case BinaryOp::kAdd:
      return Value::Float(a + b);
    case BinaryOp::kSubtract:
      return Value::Float(a - b);
    case BinaryOp::kMultiply:
      return Value::Float(a * b);
    case BinaryOp::kPower: {
      if (a == 0 && b < 0) return absl::InvalidArgumentError("zero cannot be raised to a negative power");
      const double result = std::pow(a, b);
      if (std::isnan(result) && !std::isnan(a) && !std::isnan(b)) {
        return absl::InvalidArgumentError("a negative number has no fractional power");
      }
      if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) {
        return absl::InvalidArgumentError("the power is too large for a float");
      }
      return Value::Float(result);
    }
    default:
      break;
  }
  if (b == 0) return absl::InvalidArgumentError("division by zero");
  if (op == BinaryOp::kDivide) return Value::Float(a / b);
  double rest = std::fmod(a, b);
  const bool adjust = rest != 0 && (rest < 0) != (b < 0);
  if (op == BinaryOp::kModulo) return Value::Float(adjust ? rest + b : std::copysign(rest, rest == 0 ? b : rest));
  // As Python: from the remainder, then to the nearest whole number.
  const double quotient = (a - rest) / b - (adjust ? 1 : 0);
  if (quotient == 0) return Value::Float(std::copysign(0.0, a / b));
  const double whole = std::floor(quotient);
  return Value::Float(quotient - whole > 0.5 ? whole + 1 : whole);
}

// Of a number of any kind.
absl::StatusOr<double> AsDouble(const Value& v) {
  if (v.is(Kind::kBigInt)) return NearestFloat(v);
  return v.ToFloat();
}

bool IsAnyNumber(const Value& v) { return v.IsNumber() || v.is(Kind::kBigInt); }

absl::StatusOr<Value> NumberArithmetic(BinaryOp op, const Value& left, const Value& right, Heap& heap) {
  if (left.IsWholeNumber() && right.IsWholeNumber()) return IntegerArithmetic(op, left, right, heap);
  SLUICE_ASSIGN_OR_RETURN(const double a, AsDouble(left));
  SLUICE_ASSIGN_OR_RETURN(const double b, AsDouble(right));
  SLUICE_ASSIGN_OR_RETURN(const Value result, FloatBinary(op, a, b));
  const bool from_user = OriginOf(left) != Origin::kTemplate || OriginOf(right) != Origin::kTemplate;
  return result.WithOrigin(from_user ? Origin::kUser : Origin::kTemplate);
}

// -1, 0, 1, or 2 where NaN stands.
int OrderOfNumbers(const Value& left, const Value& right) {
  if (left.IsWholeNumber() && right.IsWholeNumber()) return CompareIntegers(left, right);
  if (left.IsWholeNumber()) return CompareIntegerWithFloat(left, right.AsFloat());
  if (right.IsWholeNumber()) {
    const int order = CompareIntegerWithFloat(right, left.AsFloat());
    return order == 2 ? 2 : -order;
  }
  const double a = left.AsFloat(), b = right.AsFloat();
  return a < b ? -1 : a > b ? 1 : a == b ? 0 : 2;
}

absl::StatusOr<Value> Repeat(const Value& sequence, int64_t times, Heap& heap) {
  const size_t size = sequence.is(Kind::kString) ? sequence.AsView().size() : sequence.AsList().items.size();
  times = std::clamp<int64_t>(times, 0, size == 0 ? 1 : INT64_MAX);
  SLUICE_RETURN_IF_ERROR(heap.budget().Visit(static_cast<size_t>(times)));
  if (sequence.is(Kind::kString)) {
    TextBuilder out(heap.budget());
    for (int64_t i = 0; i < times && out.status().ok(); ++i) out.Append(sequence.AsText());
    SLUICE_ASSIGN_OR_RETURN(const Value repeated, heap.NewString(std::move(out)));
    return repeated.MarkupLike(sequence);
  }
  SLUICE_ASSIGN_OR_RETURN(const Value list, heap.NewList({}, sequence.AsList().kind));
  for (int64_t i = 0; i < times; ++i) {
    for (size_t j = 0; j < size; ++j)
      SLUICE_RETURN_IF_ERROR(heap.AppendItem(list.AsList(), sequence.AsList().items[j]));
  }
  return list;
}

// Whether `left` orders before (-1), with (0) or after (1) `right`; 2 where a NaN makes every comparison false.
absl::StatusOr<int> Order(const Value& left, const Value& right, absl::string_view symbol, Heap& heap) {
  DepthGuard guard(heap.budget());
  SLUICE_RETURN_IF_ERROR(guard.status());
  SLUICE_RETURN_IF_ERROR(heap.budget().Spend(1));
  if (left.is(Kind::kUndefined)) return UndefinedError(left);
  if (right.is(Kind::kUndefined)) return UndefinedError(right);
  auto order = [](const auto& a, const auto& b) { return a < b ? -1 : b < a ? 1 : 0; };
  if (IsAnyNumber(left) && IsAnyNumber(right)) return OrderOfNumbers(left, right);
  if (left.is(Kind::kString) && right.is(Kind::kString)) {  // the order of UTF-8 is that of the code points
    SLUICE_RETURN_IF_ERROR(heap.budget().Scan(std::min(left.AsView().size(), right.AsView().size())));
    return order(left.AsView(), right.AsView());
  }
  if (!IsSequence(left) || !IsSequence(right) || left.AsList().kind != right.AsList().kind) {
    return Mismatch(symbol, left, right);
  }
  const auto& a = left.AsList().items;
  const auto& b = right.AsList().items;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    SLUICE_ASSIGN_OR_RETURN(const bool equal, Equal(a[i], b[i], heap));
    if (!equal) return Order(a[i], b[i], symbol, heap);
  }
  return order(a.size(), b.size());
}

absl::StatusOr<bool> EqualLists(const List& a, const List& b, Heap& heap) {
  if (a.kind != b.kind) return false;
  if (&a == &b) return true;
  if (a.kind == ListKind::kIterator || a.items.size() != b.items.size()) return false;
  for (size_t i = 0; i < a.items.size(); ++i) {
    SLUICE_ASSIGN_OR_RETURN(const bool equal, Equal(a.items[i], b.items[i], heap));
    if (!equal) return false;
  }
  return true;
}

absl::StatusOr<bool> EqualDicts(const Dict& a, const Dict& b, Heap& heap) {
  if (&a == &b) return true;
  if (a.size() != b.size()) return false;
  for (const Dict::Entry& entry : a.entries()) {
    const Value* other = b.Find(entry.key);
    if (other == nullptr) return false;
    SLUICE_ASSIGN_OR_RETURN(const bool equal, Equal(entry.value, *other, heap));
    if (!equal) return false;
  }
  return true;
}

// Python's rules for the bounds of a slice: negative ones count from the end, what lies outside is cut.
int64_t SliceBound(std::optional<int64_t> bound, int64_t size, bool backwards, bool is_begin) {
  if (!bound) return is_begin == backwards ? (backwards ? size - 1 : size) : (backwards ? -1 : 0);
  const int64_t value = *bound < 0 ? std::max(*bound, -size - 1) + size : *bound;
  return backwards ? std::clamp<int64_t>(value, -1, size - 1) : std::clamp<int64_t>(value, 0, size);
}

absl::StatusOr<std::vector<Value>> Characters(const Text& text, Heap& heap) {
  SLUICE_RETURN_IF_ERROR(heap.budget().Build(text.bytes.size() * sizeof(Value)));
  std::vector<Value> items;
  for (size_t pos = 0, length; pos < text.bytes.size(); pos += length) {
    length = CharLength(text.bytes, pos);
    SLUICE_ASSIGN_OR_RETURN(const Value c, heap.NewString(TextSlice{&text, pos, pos + length}));
    items.push_back(c);
  }
  return items;
}

}  // namespace

absl::Status UndefinedError(const Value& undefined) {
  const Text* name = undefined.UndefinedName();
  if (undefined.is_forbidden()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", absl::string_view(name->bytes).substr(0, 100),
                     "' is not allowed: it is private, or changes a value of the request"));
  }
  return absl::InvalidArgumentError(
      name != nullptr ? absl::StrCat("'", absl::string_view(name->bytes).substr(0, 100), "' is undefined")
                      : "the value is undefined");
}

absl::StatusOr<Value> ApplyBinary(BinaryOp op, const Value& left, const Value& right, Heap& heap) {
  if (left.is(Kind::kUndefined)) return UndefinedError(left);
  if (op == BinaryOp::kModulo && left.is(Kind::kString)) return PercentFormat(left, right, heap);
  if (right.is(Kind::kUndefined)) return UndefinedError(right);
  if (IsAnyNumber(left) && IsAnyNumber(right)) return NumberArithmetic(op, left, right, heap);
  if (op == BinaryOp::kAdd && left.is(Kind::kString) && right.is(Kind::kString)) {
    const bool markup = left.is_markup() || right.is_markup();
    TextBuilder out(heap.budget());
    for (const Value& part : {left, right}) {
      markup && !part.is_markup() ? AppendEscaped(part.AsText(), out) : out.Append(part.AsText());
    }
    SLUICE_ASSIGN_OR_RETURN(const Value sum, heap.NewString(std::move(out)));
    return markup ? sum.AsMarkup() : sum;
  }
  if (op == BinaryOp::kAdd && IsSequence(left) && IsSequence(right) && left.AsList().kind == right.AsList().kind) {
    SLUICE_RETURN_IF_ERROR(heap.budget().Visit(left.AsList().items.size() + right.AsList().items.size()));
    std::vector<Value> items = left.AsList().items;
    items.insert(items.end(), right.AsList().items.begin(), right.AsList().items.end());
    return heap.NewList(std::move(items), left.AsList().kind);
  }
  if (op == BinaryOp::kMultiply) {
    auto repeatable = [](const Value& v) { return v.is(Kind::kString) || IsSequence(v); };
    if (repeatable(left) && right.IsInteger()) return Repeat(left, right.AsInt(), heap);
    if (repeatable(right) && left.IsInteger()) return Repeat(right, left.AsInt(), heap);
  }
  return Mismatch(Symbol(op), left, right);
}

absl::StatusOr<Value> ApplyUnary(UnaryOp op, const Value& operand, Heap& heap) {
  if (op == UnaryOp::kNot) return Value::Bool(!IsTrue(operand));
  if (operand.is(Kind::kUndefined)) return UndefinedError(operand);
  if (!IsAnyNumber(operand)) {
    return absl::InvalidArgumentError(absl::StrCat("a ", TypeName(operand), " has no sign to change"));
  }
  if (operand.is(Kind::kFloat)) {
    return Value::Float(op == UnaryOp::kMinus ? -operand.AsFloat() : operand.AsFloat()).WithOrigin(operand.origin());
  }
  if (op == UnaryOp::kMinus) return Negated(operand, heap);
  return operand.is(Kind::kBigInt) ? operand : Value::Int(operand.AsInt()).WithOrigin(operand.origin());
}

absl::StatusOr<bool> Equal(const Value& left, const Value& right, Heap& heap) {
  DepthGuard guard(heap.budget());
  SLUICE_RETURN_IF_ERROR(guard.status());
  SLUICE_RETURN_IF_ERROR(heap.budget().Spend(1));
  if (IsAnyNumber(left) && IsAnyNumber(right)) return OrderOfNumbers(left, right) == 0;
  if (left.kind() != right.kind()) return false;
  switch (left.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      if (left.AsView().size() != right.AsView().size()) return false;
      SLUICE_RETURN_IF_ERROR(heap.budget().Scan(left.AsView().size()));
      return left.AsView() == right.AsView();
    case Kind::kList:
      return EqualLists(left.AsList(), right.AsList(), heap);
    case Kind::kDict:
      return EqualDicts(left.AsDict(), right.AsDict(), heap);
    default:
      return left.SameObject(right);
  }
}

absl::StatusOr<bool> Less(const Value& left, const Value& right, Heap& heap) {
  SLUICE_ASSIGN_OR_RETURN(const int order, Order(left, right, "<", heap));
  return order == -1;
}

absl::StatusOr<bool> Contains(const Value& container, const Value& item, Heap& heap) {
  switch (container.kind()) {
    case Kind::kUndefined:
      return false;
    case Kind::kString: {
      if (!item.is(Kind::kString)) return Mismatch("in", item, container);
      const absl::string_view haystack = container.AsView(), needle = item.AsView();
      SLUICE_RETURN_IF_ERROR(heap.budget().Scan(haystack.size() + needle.size()));
      return memmem(haystack.data(), haystack.size(), needle.data(), needle.size()) != nullptr;
    }
    case Kind::kDict:
      if (!IsHashable(item)) return absl::InvalidArgumentError(absl::StrCat("a ", TypeName(item), " cannot be a key"));
      if (!item.is(Kind::kString)) SLUICE_RETURN_IF_ERROR(heap.budget().Visit(container.AsDict().size()));
      return container.AsDict().Find(item) != nullptr;
    case Kind::kList: {
      const List& list = container.AsList();
      for (size_t i = 0; i < list.items.size(); ++i) {
        SLUICE_ASSIGN_OR_RETURN(const bool equal, Equal(list.items[i], item, heap));
        if (equal) return true;
      }
      return false;
    }
    default:
      return Mismatch("in", item, container);
  }
}

absl::StatusOr<bool> Compare(CompareOp op, const Value& left, const Value& right, Heap& heap) {
  static constexpr absl::string_view kSymbols[] = {"==", "!=", "<", "<=", ">", ">=", "in", "not in"};
  switch (op) {
    case CompareOp::kEqual:
    case CompareOp::kNotEqual: {
      SLUICE_ASSIGN_OR_RETURN(const bool equal, Equal(left, right, heap));
      return equal == (op == CompareOp::kEqual);
    }
    case CompareOp::kIn:
    case CompareOp::kNotIn: {
      SLUICE_ASSIGN_OR_RETURN(const bool found, Contains(right, left, heap));
      return found == (op == CompareOp::kIn);
    }
    default:
      break;
  }
  SLUICE_ASSIGN_OR_RETURN(const int order, Order(left, right, kSymbols[static_cast<int>(op)], heap));
  switch (op) {
    case CompareOp::kLess:
      return order == -1;
    case CompareOp::kLessEqual:
      return order == -1 || order == 0;
    case CompareOp::kGreater:
      return order == 1;
    default:
      return order == 0 || order == 1;
  }
}

absl::StatusOr<Value> FindItem(const Value& object, const Value& key, Heap& heap) {
  const Value missing = Value::Undefined(key.is(Kind::kString) ? &key.AsText() : nullptr);
  if (object.is(Kind::kDict)) {
    if (!key.is(Kind::kString)) SLUICE_RETURN_IF_ERROR(heap.budget().Visit(object.AsDict().size()));
    const Value* found = object.AsDict().Find(key);
    return found != nullptr ? *found : missing;
  }
  if (!key.IsInteger()) return missing;
  int64_t index = key.AsInt();
  if (IsSequence(object)) {
    const auto& items = object.AsList().items;
    if (index < 0) index += static_cast<int64_t>(items.size());
    if (index < 0 || index >= static_cast<int64_t>(items.size())) return missing;
    return items[static_cast<size_t>(index)];
  }
  if (object.is(Kind::kString)) {
    if (index < 0) {
      const auto end = index == -1 ? std::nullopt : std::optional(index + 1);
      SLUICE_ASSIGN_OR_RETURN(const Value c, TakeSlice(object, index, end, 1, heap));
      return c.AsView().empty() ? missing : c;
    }
    if (index == INT64_MAX) return missing;
    SLUICE_ASSIGN_OR_RETURN(const Value c, TakeSlice(object, index, index + 1, 1, heap));
    return c.AsView().empty() ? missing : c;
  }
  return missing;
}

absl::StatusOr<Value> TakeSlice(const Value& object, std::optional<int64_t> begin, std::optional<int64_t> end,
                                std::optional<int64_t> step, Heap& heap) {
  if (object.is(Kind::kUndefined)) return UndefinedError(object);
  if (!object.is(Kind::kString) && !IsSequence(object)) {
    return absl::InvalidArgumentError(absl::StrCat("a ", TypeName(object), " cannot be sliced"));
  }
  const int64_t stride = step.value_or(1);
  if (stride == 0) return absl::InvalidArgumentError("the step of a slice is zero");
  const bool is_text = object.is(Kind::kString);
  // Byte positions of the characters, unless each is one byte.
  std::vector<size_t> starts;
  if (is_text && !object.AsText().ascii) {
    const absl::string_view s = object.AsView();
    SLUICE_RETURN_IF_ERROR(heap.budget().Visit(s.size()));
    for (size_t pos = 0; pos < s.size(); pos += CharLength(s, pos)) starts.push_back(pos);
    starts.push_back(s.size());
  }
  auto start_of = [&](int64_t i) { return starts.empty() ? static_cast<size_t>(i) : starts[static_cast<size_t>(i)]; };
  const auto size = static_cast<int64_t>(!is_text         ? object.AsList().items.size()
                                         : starts.empty() ? object.AsView().size()
                                                          : starts.size() - 1);
  const int64_t from = SliceBound(begin, size, stride < 0, true);
  const int64_t to = SliceBound(end, size, stride < 0, false);
  if (is_text && stride == 1) {
    SLUICE_ASSIGN_OR_RETURN(const Value slice,
                            heap.NewString(TextSlice{&object.AsText(), start_of(from), start_of(std::max(from, to))}));
    return slice.MarkupLike(object);
  }
  const int64_t distance = stride > 0 ? to - from : from - to;
  const int64_t magnitude = stride > 0 ? stride : (stride == INT64_MIN ? INT64_MAX : -stride);
  const int64_t count = distance <= 0 ? 0 : (distance - 1) / magnitude + 1;
  SLUICE_RETURN_IF_ERROR(heap.budget().Visit(static_cast<size_t>(count)));
  TextBuilder out(heap.budget());
  std::vector<Value> items;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t at = from + i * stride;
    if (is_text) {
      out.Append(TextSlice{&object.AsText(), start_of(at), start_of(at + 1)});
    } else {
      items.push_back(object.AsList().items[static_cast<size_t>(at)]);
    }
  }
  if (!is_text) return heap.NewList(std::move(items), object.AsList().kind);
  SLUICE_ASSIGN_OR_RETURN(const Value slice, heap.NewString(std::move(out)));
  return slice.MarkupLike(object);
}

absl::StatusOr<std::vector<Value>> Iterate(const Value& value, Heap& heap) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return std::vector<Value>();
    case Kind::kString:
      return Characters(value.AsText(), heap);
    case Kind::kList:
      if (value.AsList().kind == ListKind::kIterator) return std::exchange(value.AsList().items, {});
      SLUICE_RETURN_IF_ERROR(heap.budget().Visit(value.AsList().items.size()));
      return value.AsList().items;
    case Kind::kDict: {
      SLUICE_RETURN_IF_ERROR(heap.budget().Visit(value.AsDict().size()));
      std::vector<Value> keys;
      for (const Dict::Entry& entry : value.AsDict().entries()) keys.push_back(entry.key);
      return keys;
    }
    default:
      return absl::InvalidArgumentError(absl::StrCat("a ", TypeName(value), " cannot be iterated"));
  }
}

}  // namespace sluice::jinja
