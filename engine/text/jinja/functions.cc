// Functions that every template can call: range, dict, namespace, cycler, joiner, raise_exception, strftime_now.
#include <ctime>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/text/jinja/builtins.h"
#include "engine/text/jinja/operators.h"
#include "engine/text/jinja/python_format.h"
#include "engine/text/utf8.h"

namespace sluice::jinja {
namespace {

using Result = absl::StatusOr<Value>;

Result Range(const Invocation& call) {
  int64_t given[3] = {0, 0, 1};
  size_t n = 0;
  for (const Value* arg : call.args) {
    if (arg == nullptr) continue;
    if (arg->is(Kind::kUndefined)) return UndefinedError(*arg);
    if (!arg->IsInteger())
      return absl::InvalidArgumentError(absl::StrCat("range wants integers, found ", TypeName(*arg)));
    given[n++] = arg->AsInt();
  }
  const int64_t begin = n == 1 ? 0 : given[0];
  const int64_t end = n == 1 ? given[0] : given[1];
  const int64_t step = n == 3 ? given[2] : 1;
  if (step == 0) return absl::InvalidArgumentError("the step of a range is zero");
  const __int128 distance = step > 0 ? static_cast<__int128>(end) - begin : static_cast<__int128>(begin) - end;
  const __int128 stride = step > 0 ? static_cast<__int128>(step) : -static_cast<__int128>(step);
  const __int128 count = distance <= 0 ? 0 : (distance - 1) / stride + 1;
  if (count > call.context.budget().limits().max_range) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a range has more than ", call.context.budget().limits().max_range, " items"));
  }
  SLUICE_RETURN_IF_ERROR(call.context.budget().Visit(static_cast<size_t>(count)));
  std::vector<Value> items;
  for (int64_t i = 0; i < count; ++i) items.push_back(Value::Int(begin + i * step));
  return call.heap().NewList(std::move(items));
}

// dict(a=1) and namespace(a=1), both also from a dict.
absl::Status FillFromArguments(const Invocation& call, absl::string_view what, Dict& dict) {
  const auto& positional = call.all.positional;
  if (positional.size() > 1) return absl::InvalidArgumentError(absl::StrCat(what, " wants keywords or one dict"));
  if (!positional.empty() && !positional[0].is(Kind::kDict)) {
    SLUICE_ASSIGN_OR_RETURN(const std::vector<Value> pairs, Iterate(positional[0], call.heap()));
    for (const Value& item : pairs) {
      SLUICE_ASSIGN_OR_RETURN(const std::vector<Value> pair, Iterate(item, call.heap()));
      if (pair.size() != 2 || !IsHashable(pair[0]) || pair[0].is(Kind::kList)) {
        return absl::InvalidArgumentError(absl::StrCat(what, " wants keywords, one dict or pairs"));
      }
      SLUICE_RETURN_IF_ERROR(call.heap().SetItem(dict, pair[0], pair[1]));
    }
  } else if (!positional.empty()) {
    for (const Dict::Entry& entry : positional[0].AsDict().entries()) {
      SLUICE_RETURN_IF_ERROR(call.heap().SetItem(dict, entry.key, entry.value));
    }
  }
  for (const auto& [name, value] : call.all.keyword) {
    SLUICE_ASSIGN_OR_RETURN(const Value key, call.heap().NewString(name, Origin::kTemplate));
    SLUICE_RETURN_IF_ERROR(call.heap().SetItem(dict, key, value));
  }
  return absl::OkStatus();
}

Result MakeDict(const Invocation& call) {
  SLUICE_ASSIGN_OR_RETURN(const Value dict, call.heap().NewDict());
  SLUICE_RETURN_IF_ERROR(FillFromArguments(call, "dict", dict.AsDict()));
  return dict;
}

Result MakeNamespace(const Invocation& call) {
  SLUICE_ASSIGN_OR_RETURN(const Value result, call.heap().NewNamespace());
  SLUICE_RETURN_IF_ERROR(FillFromArguments(call, "namespace", result.AsDict()));
  for (const Dict::Entry& entry : result.AsDict().entries()) {
    if (entry.key.is(Kind::kString) && absl::StartsWith(entry.key.AsView(), "_")) {
      return absl::InvalidArgumentError("a namespace has no attributes that begin with '_'");
    }
  }
  return result;
}

Result MakeCycler(const Invocation& call) {
  if (call.all.positional.empty()) return absl::InvalidArgumentError("cycler wants values");
  std::vector<Value> items = {Value::Int(0)};
  items.insert(items.end(), call.all.positional.begin(), call.all.positional.end());
  SLUICE_ASSIGN_OR_RETURN(const Value state, call.heap().NewList(std::move(items)));
  return Value::Cycler(&state.AsList());
}

// Nothing the first time it is called, then the separator. Its state: the separator, and whether it was called.
Result CallJoiner(const Invocation& call) {
  auto& state = call.self.AsList().items;
  if (state[1].AsBool()) return state[0];
  state[1] = Value::Bool(true);
  return call.heap().NewString("", Origin::kTemplate);
}
constexpr Builtin kJoiner = {"joiner", CallJoiner};

Result MakeJoiner(const Invocation& call) {
  SLUICE_ASSIGN_OR_RETURN(const Value comma, call.heap().NewString(", ", Origin::kTemplate));
  SLUICE_ASSIGN_OR_RETURN(const Value state,
                          call.heap().NewList({call.args[0] != nullptr ? *call.args[0] : comma, Value::Bool(false)}));
  return call.heap().NewFunction({&kJoiner, state});
}

Result RaiseException(const Invocation& call) {
  SLUICE_ASSIGN_OR_RETURN(const Value message, ToStr(*call.args[0], call.heap()));
  return absl::InvalidArgumentError(message.AsView());
}

Result StrftimeNow(const Invocation& call) {
  constexpr size_t kMaxFormat = 256;
  const Value& format = *call.args[0];
  if (!format.is(Kind::kString) || format.AsView().size() > kMaxFormat) {
    return absl::InvalidArgumentError(absl::StrCat("strftime_now wants a string of at most ", kMaxFormat, " bytes"));
  }
  const absl::CivilSecond now = call.context.now;
  std::tm tm = {};
  tm.tm_year = static_cast<int>(now.year() - 1900);
  tm.tm_mon = now.month() - 1;
  tm.tm_mday = now.day();
  tm.tm_hour = now.hour();
  tm.tm_min = now.minute();
  tm.tm_sec = now.second();
  tm.tm_wday = (static_cast<int>(absl::GetWeekday(now)) + 1) % 7;  // abseil's week begins on Monday
  tm.tm_yday = absl::GetYearDay(now) - 1;
  tm.tm_isdst = -1;
  tm.tm_zone = "";
  char buffer[8 * kMaxFormat];
  // The x tells an empty result from one that did not fit.
  const size_t size = std::strftime(buffer, sizeof(buffer), absl::StrCat(format.AsView(), "x").c_str(), &tm);
  if (size == 0 || FindInvalidUtf8(absl::string_view(buffer, size)) != absl::string_view::npos) {
    return absl::InvalidArgumentError("strftime_now: the format cannot be used");
  }
  return call.heap().NewString(absl::string_view(buffer, size - 1), format.AsText().origin());
}

constexpr Builtin kFunctions[] = {
    {"cycler", MakeCycler, {}, 0, /*variadic=*/true},
    {"dict", MakeDict, {}, 0, /*variadic=*/true},
    {"joiner", MakeJoiner, {"sep"}},
    {"namespace", MakeNamespace, {}, 0, /*variadic=*/true},
    {"raise_exception", RaiseException, {"message"}, 1, /*variadic=*/false, /*speaks_for_itself=*/true},
    {"range", Range, {"start", "stop", "step"}, 1},
    {"strftime_now", StrftimeNow, {"format"}, 1},
};

}  // namespace

const Builtin* FindFunction(absl::string_view name) {
  for (const Builtin& function : kFunctions) {
    if (function.name == name) return &function;
  }
  return nullptr;
}

}  // namespace sluice::jinja
