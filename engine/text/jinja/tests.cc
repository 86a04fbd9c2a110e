// The tests of Jinja: `x is name`.
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/text/jinja/builtins.h"
#include "engine/text/jinja/operators.h"
#include "engine/text/jinja/python_format.h"
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
                     (v.is(Kind::kList) && v.AsList().kind <= ListKind::kTuple));
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

absl::StatusOr<int64_t> Remainder(const Value& value, int64_t divisor, Heap& heap) {
  SLUICE_ASSIGN_OR_RETURN(const Value rest, ApplyBinary(BinaryOp::kModulo, value, Value::Int(divisor), heap));
  return rest.is(Kind::kFloat) ? (rest.AsFloat() == 0 ? 0 : rest.AsFloat() == 1 ? 1 : 2) : rest.AsInt();
}
Result IsEven(const Invocation& call) {
  SLUICE_ASSIGN_OR_RETURN(const int64_t rest, Remainder(call.self, 2, call.heap()));
  return Value::Bool(rest == 0);
}
Result IsOdd(const Invocation& call) {
  SLUICE_ASSIGN_OR_RETURN(const int64_t rest, Remainder(call.self, 2, call.heap()));
  return Value::Bool(rest == 1);
}
Result IsDivisibleBy(const Invocation& call) {
  if (!call.args[0]->IsInteger()) return absl::InvalidArgumentError("divisibleby wants an integer");
  SLUICE_ASSIGN_OR_RETURN(const int64_t rest, Remainder(call.self, call.args[0]->AsInt(), call.heap()));
  return Value::Bool(rest == 0);
}

// str.islower(), str.isupper(): there is a letter with a case, and none of the other case.
Result HasCase(const Invocation& call, std::string (*same)(absl::string_view),
               std::string (*other)(absl::string_view)) {
  SLUICE_ASSIGN_OR_RETURN(const Value text, ToStr(call.self, call.heap()));
  SLUICE_RETURN_IF_ERROR(call.context.budget().Visit(text.AsView().size()));
  return Value::Bool(same(text.AsView()) == text.AsView() && other(text.AsView()) != text.AsView());
}
Result IsLower(const Invocation& call) { return HasCase(call, ToLower, ToUpper); }
Result IsUpper(const Invocation& call) { return HasCase(call, ToUpper, ToLower); }

constexpr Builtin kTests[] = {
    {"boolean", IsKind<Kind::kBool>},
    {"callable", IsKind<Kind::kMacro, Kind::kFunction, Kind::kUndefined>},
    {"defined", IsDefined},
    {"divisibleby", IsDivisibleBy, {"num"}, 1},
    {"eq", Compares<CompareOp::kEqual>, {"other"}, 1},
    {"equalto", Compares<CompareOp::kEqual>, {"other"}, 1},
    {"even", IsEven},
    {"false", IsFalseConstant},
    {"float", IsKind<Kind::kFloat>},
    {"ge", Compares<CompareOp::kGreaterEqual>, {"other"}, 1},
    {"greaterthan", Compares<CompareOp::kGreater>, {"other"}, 1},
    {"gt", Compares<CompareOp::kGreater>, {"other"}, 1},
    {"in", Compares<CompareOp::kIn>, {"seq"}, 1},
    {"integer", IsKind<Kind::kInt, Kind::kBigInt>},
    {"iterable", IsKind<Kind::kString, Kind::kList, Kind::kDict, Kind::kUndefined, Kind::kLoop>},
    {"le", Compares<CompareOp::kLessEqual>, {"other"}, 1},
    {"lessthan", Compares<CompareOp::kLess>, {"other"}, 1},
    {"lower", IsLower},
    {"lt", Compares<CompareOp::kLess>, {"other"}, 1},
    {"mapping", IsKind<Kind::kDict>},
    {"ne", Compares<CompareOp::kNotEqual>, {"other"}, 1},
    {"none", IsKind<Kind::kNone>},
    {"number", IsKind<Kind::kBool, Kind::kInt, Kind::kBigInt, Kind::kFloat>},
    {"odd", IsOdd},
    {"sameas", IsSame, {"other"}, 1},
    {"sequence", IsSequence},
    {"string", IsKind<Kind::kString>},
    {"true", IsTrueConstant},
    {"undefined", IsKind<Kind::kUndefined>},
    {"upper", IsUpper},
};

}  // namespace

const Builtin* FindTest(absl::string_view name) {
  for (const Builtin& test : kTests) {
    if (test.name == name) return &test;
  }
  return nullptr;
}

}  // namespace sluice::jinja
