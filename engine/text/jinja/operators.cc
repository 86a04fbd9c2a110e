#include "engine/text/jinja/operators.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
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

bool IsSequence(const Value& v) { return v.is(Kind::kList) && v.AsList().kind <= ListKind::kTuple; }

absl::Status Overflow() { return absl::InvalidArgumentError("the result is no integer of 64 bits"); }

// Base to the power of a non-negative exponent, by squaring.
absl::StatusOr<int64_t> Power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) return Overflow();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return Overflow();
  }
  return result;
}

absl::StatusOr<Value> IntegerBinary(BinaryOp op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case BinaryOp::kAdd:
      if (__builtin_add_overflow(a, b, &result)) return Overflow();
      return Value::Int(result);
    case BinaryOp::kSubtract:
      if (__builtin_sub_overflow(a, b, &result)) return Overflow();
      return Value::Int(result);
    case BinaryOp::kMultiply:
      if (__builtin_mul_overflow(a, b, &result)) return Overflow();
      return Value::Int(result);
    case BinaryOp::kPower: {
      if (b < 0) return Value::Float(std::pow(static_cast<double>(a), static_cast<double>(b)));
      SLUICE_ASSIGN_OR_RETURN(result, Power(a, b));
      return Value::Int(result);
    }
    default:
      break;
  }
  if (b == 0) return absl::InvalidArgumentError("division by zero");
  if (op == BinaryOp::kDivide) return Value::Float(static_cast<double>(a) / static_cast<double>(b));
  if (b == -1) {  // the one quotient that overflows
    if (op == BinaryOp::kModulo) return Value::Int(0);
    if (__builtin_sub_overflow(int64_t{0}, a, &result)) return Overflow();
    return Value::Int(result);
  }
  // Python rounds down, C++ towards zero.
  const bool adjust = a % b != 0 && (a % b < 0) != (b < 0);
  return Value::Int(op == BinaryOp::kModulo ? a % b + (adjust ? b : 0) : a / b - (adjust ? 1 : 0));
}

absl::StatusOr<Value> FloatBinary(BinaryOp op, double a, double b) {
  switch (op) {
    case BinaryOp::kAdd:
      return Value::Float(a + b);
    case BinaryOp::kSubtract:
      return Value::Float(a - b);
    case BinaryOp::kMultiply:
      return Value::Float(a * b);
    case BinaryOp::kPower:
      return Value::Float(std::pow(a, b));
    default:
      break;
  }
  if (b == 0) return absl::InvalidArgumentError("division by zero");
  if (op == BinaryOp::kDivide) return Value::Float(a / b);
  if (op == BinaryOp::kFloorDivide) return Value::Float(std::floor(a / b));
  const double rest = std::fmod(a, b);
  return Value::Float(rest != 0 && (rest < 0) != (b < 0) ? rest + b : std::copysign(rest, rest == 0 ? b : rest));
}

absl::StatusOr<Value> Repeat(const Value& sequence, int64_t times, Heap& heap) {
  const size_t size = sequence.is(Kind::kString) ? sequence.AsView().size() : sequence.AsList().items.size();
  times = std::clamp<int64_t>(times, 0, size == 0 ? 1 : INT64_MAX);
  SLUICE_RETURN_IF_ERROR(heap.budget().Visit(static_cast<size_t>(times)));
  if (sequence.is(Kind::kString)) {
    TextBuilder out(heap.budget());
    for (int64_t i = 0; i < times && out.status().ok(); ++i) out.Append(sequence.AsText());
    return heap.NewString(std::move(out));
  }
  SLUICE_ASSIGN_OR_RETURN(const Value list, heap.NewList({}, sequence.AsList().kind));
  for (int64_t i = 0; i < times; ++i) {
    for (size_t j = 0; j < size; ++j)
      SLUICE_RETURN_IF_ERROR(heap.AppendItem(list.AsList(), sequence.AsList().items[j]));
  }
  return list;
}

void AppendEscaped(const Text& text, TextBuilder& out) {
  const absl::string_view s = text.bytes;
  for (size_t pos = 0; out.status().ok();) {
    const size_t special = std::min(s.find_first_of("&<>'\"", pos), s.size());
    out.Append(TextSlice{&text, pos, special});
    if (special == s.size()) return;
    static constexpr std::pair<char, absl::string_view> kEscapes[] = {
        {'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'\'', "&#39;"}, {'"', "&#34;"}};
    for (const auto& [c, escape] : kEscapes) {
      if (c == s[special]) out.Append(escape, text.AllFromTemplate() ? Origin::kTemplate : Origin::kUser);
    }
    pos = special + 1;
  }
}

// Whether `left` orders before (-1), with (0) or after (1) `right`.
absl::StatusOr<int> Order(const Value& left, const Value& right, absl::string_view symbol, Heap& heap) {
  DepthGuard guard(heap.budget());
  SLUICE_RETURN_IF_ERROR(guard.status());
  SLUICE_RETURN_IF_ERROR(heap.budget().Spend(1));
  if (left.is(Kind::kUndefined)) return UndefinedError(left);
  if (right.is(Kind::kUndefined)) return UndefinedError(right);
  auto order = [](const auto& a, const auto& b) { return a < b ? -1 : b < a ? 1 : 0; };
  if (left.IsInteger() && right.IsInteger()) return order(left.AsInt(), right.AsInt());
  if (left.IsNumber() && right.IsNumber()) return order(left.ToFloat(), right.ToFloat());
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
  return absl::InvalidArgumentError(
      name != nullptr ? absl::StrCat("'", absl::string_view(name->bytes).substr(0, 100), "' is undefined")
                      : "the value is undefined");
}

absl::StatusOr<Value> ApplyBinary(BinaryOp op, const Value& left, const Value& right, Heap& heap) {
  if (left.is(Kind::kUndefined)) return UndefinedError(left);
  if (right.is(Kind::kUndefined)) return UndefinedError(right);
  if (left.IsNumber() && right.IsNumber()) {
    const bool from_user = left.origin() == Origin::kUser || right.origin() == Origin::kUser;
    SLUICE_ASSIGN_OR_RETURN(const Value result, left.IsInteger() && right.IsInteger()
                                                    ? IntegerBinary(op, left.AsInt(), right.AsInt())
                                                    : FloatBinary(op, left.ToFloat(), right.ToFloat()));
    return result.WithOrigin(from_user ? Origin::kUser : Origin::kTemplate);
  }
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

absl::StatusOr<Value> ApplyUnary(UnaryOp op, const Value& operand) {
  if (op == UnaryOp::kNot) return Value::Bool(!IsTrue(operand));
  if (operand.is(Kind::kUndefined)) return UndefinedError(operand);
  if (!operand.IsNumber()) {
    return absl::InvalidArgumentError(absl::StrCat("a ", TypeName(operand), " has no sign to change"));
  }
  if (operand.is(Kind::kFloat)) {
    return Value::Float(op == UnaryOp::kMinus ? -operand.AsFloat() : operand.AsFloat()).WithOrigin(operand.origin());
  }
  int64_t result = operand.AsInt();
  if (op == UnaryOp::kMinus && __builtin_sub_overflow(int64_t{0}, operand.AsInt(), &result)) return Overflow();
  return Value::Int(result).WithOrigin(operand.origin());
}

absl::StatusOr<bool> Equal(const Value& left, const Value& right, Heap& heap) {
  DepthGuard guard(heap.budget());
  SLUICE_RETURN_IF_ERROR(guard.status());
  SLUICE_RETURN_IF_ERROR(heap.budget().Spend(1));
  if (left.IsNumber() && right.IsNumber()) {
    return left.IsInteger() && right.IsInteger() ? left.AsInt() == right.AsInt() : left.ToFloat() == right.ToFloat();
  }
  if (left.kind() != right.kind()) return false;
  switch (left.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
    case Kind::kBigInt:
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
  return order < 0;
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
      return order < 0;
    case CompareOp::kLessEqual:
      return order <= 0;
    case CompareOp::kGreater:
      return order > 0;
    default:
      return order >= 0;
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
    return heap.NewString(TextSlice{&object.AsText(), start_of(from), start_of(std::max(from, to))});
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
  return is_text ? heap.NewString(std::move(out)) : heap.NewList(std::move(items), object.AsList().kind);
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
