// The tests of Jinja: `x is name`.
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/text/jinja/builtins.h"
#include "engine/text/jinja/operators.h"
#include "engine/text/jinja/python_format.h"
#include "engine/text/jinja/strings.h"
#include "engine/text/jinja/unicode.h"

namespace sluice::jinja {
namespace {

using Result = absl::StatusOr<Value>;

template <Kind... kinds>
Result IsKind(const Invocation& call) {
  return Value::Bool((call.self.is(kinds) || ...));
}

Result IsDefined(const Invocation& call) { return Value::Bool(!call.self.is(Kind::kUndefined)); }
Result IsTrueConstant(const Invocation& call) { return Value::Bool(call.self.is(Kind::kBool) && call.self.AsBool()); }
Result IsFalseConstant(const Invocation& call) { return Value::Bool(call.self.is(Kind::kBool) && !call.self.AsBool()); }

// Whether it has a length and an index, which Python's dicts and undefined values do too.
Result IsSequence(const Invocation& call) {
  const Value& v = call.self;
  return Value::Bool(v.is(Kind::kString) || v.is(Kind::kDict) || v.is(Kind::kUndefined) ||
                     (v.is(Kind::kList) && v.AsList().kind <= ListKind::kGroup));
}

template <CompareOp op>
Result Compares(const Invocation& call) {
  SLUICE_ASSIGN_OR_RETURN(const bool result, Compare(op, call.self, *call.args[0], call.heap()));
  return Value::Bool(result);
}

Result IsSame(const Invocation& call) {
  const Value& other = *call.args[0];
  if (call.self.is(Kind::kString) && other.is(Kind::kString)) return Value::Bool(call.self.AsView() == other.AsView());
  return Value::Bool(call.self.SameObject(other));
}

// Whether value % divisor equals `rest`.
Result RemainderIs(const Value& value, const Value& divisor, int64_t rest, Heap& heap) {
  SLUICE_ASSIGN_OR_RETURN(const Value found, ApplyBinary(BinaryOp::kModulo, value, divisor, heap));
  SLUICE_ASSIGN_OR_RETURN(const bool equal, Equal(found, Value::Int(rest), heap));
  return Value::Bool(equal);
}
Result IsEven(const Invocation& call) { return RemainderIs(call.self, Value::Int(2), 0, call.heap()); }
Result IsOdd(const Invocation& call) { return RemainderIs(call.self, Value::Int(2), 1, call.heap()); }
Result IsDivisibleBy(const Invocation& call) { return RemainderIs(call.self, *call.args[0], 0, call.heap()); }

// str.islower() or str.isupper() of its text.
template <bool upper>
Result IsOfOneCase(const Invocation& call) {
  SLUICE_ASSIGN_OR_RETURN(const Value text, ToStr(call.self, call.heap()));
  SLUICE_RETURN_IF_ERROR(call.context.budget().Visit(text.AsView().size()));
  return Value::Bool(HasOneCase(text.AsView(), upper));
}

Result IsEscaped(const Invocation& call) { return Value::Bool(call.self.is_markup()); }
absl::Status WantsName(const Value& found) {
  if (IsHashable(found)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a ", TypeName(found), " is no name"));
}
Result IsFilter(const Invocation& call) {
  SLUICE_RETURN_IF_ERROR(WantsName(call.self));
  return Value::Bool(call.self.is(Kind::kString) && FindFilter(call.self.AsView()) != nullptr);
}
Result IsTest(const Invocation& call) {
  SLUICE_RETURN_IF_ERROR(WantsName(call.self));
  return Value::Bool(call.self.is(Kind::kString) && FindTest(call.self.AsView()) != nullptr);
}

constexpr Builtin kTests[] = {
    {"!=", Compares<CompareOp::kNotEqual>, {"other"}, 1},
    {"<", Compares<CompareOp::kLess>, {"other"}, 1},
    {"<=", Compares<CompareOp::kLessEqual>, {"other"}, 1},
    {"==", Compares<CompareOp::kEqual>, {"other"}, 1},
    {">", Compares<CompareOp::kGreater>, {"other"}, 1},
    {">=", Compares<CompareOp::kGreaterEqual>, {"other"}, 1},
    {"boolean", IsKind<Kind::kBool>},
    {"callable", IsKind<Kind::kMacro, Kind::kFunction, Kind::kUndefined, Kind::kLoop>},
    {"defined", IsDefined},
    {"divisibleby", IsDivisibleBy, {"num"}, 1},
    {"eq", Compares<CompareOp::kEqual>, {"other"}, 1},
    {"equalto", Compares<CompareOp::kEqual>, {"other"}, 1},
    {"escaped", IsEscaped},
    {"even", IsEven},
    {"false", IsFalseConstant},
    {"filter", IsFilter},
    {"float", IsKind<Kind::kFloat>},
    {"ge", Compares<CompareOp::kGreaterEqual>, {"other"}, 1},
    {"greaterthan", Compares<CompareOp::kGreater>, {"other"}, 1},
    {"gt", Compares<CompareOp::kGreater>, {"other"}, 1},
    {"in", Compares<CompareOp::kIn>, {"seq"}, 1},
    {"integer", IsKind<Kind::kInt, Kind::kBigInt>},
    {"iterable", IsKind<Kind::kString, Kind::kList, Kind::kDict, Kind::kUndefined, Kind::kLoop>},
    {"le", Compares<CompareOp::kLessEqual>, {"other"}, 1},
    {"lessthan", Compares<CompareOp::kLess>, {"other"}, 1},
    {"lower", IsOfOneCase<false>},
    {"lt", Compares<CompareOp::kLess>, {"other"}, 1},
    {"mapping", IsKind<Kind::kDict>},
    {"ne", Compares<CompareOp::kNotEqual>, {"other"}, 1},
    {"none", IsKind<Kind::kNone>},
    {"number", IsKind<Kind::kBool, Kind::kInt, Kind::kBigInt, Kind::kFloat>},
    {"odd", IsOdd},
    {"sameas", IsSame, {"other"}, 1},
    {"sequence", IsSequence},
    {"string", IsKind<Kind::kString>},
    {"test", IsTest},
    {"true", IsTrueConstant},
    {"undefined", IsKind<Kind::kUndefined>},
    {"upper", IsOfOneCase<true>},
};

}  // namespace

const Builtin* FindTest(absl::string_view name) {
  for (const Builtin& test : kTests) {
    if (test.name == name) return &test;
  }
  return nullptr;
}

}  // namespace sluice::jinja
