// Methods of lists, tuples and dicts. Jinja's sandbox forbids those that change them; templates that collect call ids
// this way (Kimi K2) need them, so they are there for what the template itself made, and not for the request's values.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/text/jinja/methods.h"
#include "engine/text/jinja/operators.h"

namespace sluice::jinja {
namespace {

using Result = absl::StatusOr<Value>;

absl::StatusOr<int64_t> OptionalInt(const Invocation& call, size_t i, int64_t otherwise, absl::string_view what) {
  const Value* arg = call.args[i];
  if (arg == nullptr) return otherwise;
  if (!arg->IsInteger()) {
    return absl::InvalidArgumentError(absl::StrCat(what, " wants an integer, found ", TypeName(*arg)));
  }
  return arg->AsInt();
}

// ---- lists

Result ListAppend(const Invocation& call) {
  SLUICE_RETURN_IF_ERROR(call.heap().AppendItem(call.self.AsList(), *call.args[0]));
  return Value::None();
}

Result ListPop(const Invocation& call) {
  auto& items = call.self.AsList().items;
  SLUICE_ASSIGN_OR_RETURN(int64_t index, OptionalInt(call, 0, -1, "pop"));
  if (index < 0) index += static_cast<int64_t>(items.size());
  if (index < 0 || index >= static_cast<int64_t>(items.size())) {
    return absl::InvalidArgumentError("pop: the list has no such item");
  }
  SLUICE_RETURN_IF_ERROR(call.context.budget().Visit(items.size()));
  const Value popped = items[static_cast<size_t>(index)];
  items.erase(items.begin() + index);
  return popped;
}

Result ListInsert(const Invocation& call) {
  auto& items = call.self.AsList().items;
  SLUICE_ASSIGN_OR_RETURN(const int64_t index, OptionalInt(call, 0, 0, "insert"));
  const auto size = static_cast<int64_t>(items.size());
  SLUICE_RETURN_IF_ERROR(call.context.budget().Build(2 * sizeof(Value)));
  SLUICE_RETURN_IF_ERROR(call.context.budget().Visit(items.size()));
  items.insert(items.begin() + std::clamp<int64_t>(index < 0 ? std::max(index, -size) + size : index, 0, size),
               *call.args[1]);
  return Value::None();
}

Result ListExtend(const Invocation& call) {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<Value> added, Iterate(*call.args[0], call.heap()));
  for (const Value& item : added) SLUICE_RETURN_IF_ERROR(call.heap().AppendItem(call.self.AsList(), item));
  return Value::None();
}

Result ListRemove(const Invocation& call) {
  auto& items = call.self.AsList().items;
  for (size_t i = 0; i < items.size(); ++i) {
    SLUICE_ASSIGN_OR_RETURN(const bool equal, Equal(items[i], *call.args[0], call.heap()));
    if (!equal) continue;
    items.erase(items.begin() + static_cast<ptrdiff_t>(i));
    return Value::None();
  }
  return absl::InvalidArgumentError("remove: the value is not in the list");
}

Result ListClear(const Invocation& call) {
  call.self.AsList().items.clear();
  return Value::None();
}

Result ListReverse(const Invocation& call) {
  auto& items = call.self.AsList().items;
  SLUICE_RETURN_IF_ERROR(call.context.budget().Visit(items.size()));
  std::reverse(items.begin(), items.end());
  return Value::None();
}

// Without the case-folding of the filter of this name.
Result ListSort(const Invocation& call) {
  SLUICE_ASSIGN_OR_RETURN(const Value reverse, Result(call.args[0] != nullptr ? *call.args[0] : Value::Bool(false)));
  SLUICE_ASSIGN_OR_RETURN(const Value sorted,
                          Invoke(*FindFilter("sort"), call.context, call.self, {{reverse, Value::Bool(true)}, {}}));
  call.self.AsList().items = sorted.AsList().items;
  return Value::None();
}

Result ListCopy(const Invocation& call) {
  SLUICE_RETURN_IF_ERROR(call.context.budget().Visit(call.self.AsList().items.size()));
  return call.heap().NewList(call.self.AsList().items);
}

Result ListIndex(const Invocation& call) {
  const List& list = call.self.AsList();
  const auto size = static_cast<int64_t>(list.items.size());
  SLUICE_ASSIGN_OR_RETURN(int64_t begin, OptionalInt(call, 1, 0, "index"));
  SLUICE_ASSIGN_OR_RETURN(int64_t end, OptionalInt(call, 2, size, "index"));
  begin = begin < 0 ? std::max(begin, -size) + size : begin;
  end = end < 0 ? std::max(end, -size) + size : std::min(end, size);
  for (int64_t i = begin; i < end; ++i) {
    SLUICE_ASSIGN_OR_RETURN(const bool equal, Equal(list.items[static_cast<size_t>(i)], *call.args[0], call.heap()));
    if (equal) return Value::Int(i);
  }
  return absl::InvalidArgumentError("index: the value is not in the list");
}

Result ListCount(const Invocation& call) {
  const List& list = call.self.AsList();
  int64_t count = 0;
  for (size_t i = 0; i < list.items.size(); ++i) {
    SLUICE_ASSIGN_OR_RETURN(const bool equal, Equal(list.items[i], *call.args[0], call.heap()));
    count += equal ? 1 : 0;
  }
  return Value::Int(count);
}

// ---- dicts

absl::Status CheckKey(const Value& key) {
  if (IsHashable(key)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a ", TypeName(key), " cannot be a key"));
}

Result DictGet(const Invocation& call) {
  SLUICE_RETURN_IF_ERROR(CheckKey(*call.args[0]));
  const Value* found = call.self.AsDict().Find(*call.args[0]);
  if (found != nullptr) return *found;
  return call.args[1] != nullptr ? *call.args[1] : Value::None();
}

Result DictView(const Invocation& call, ListKind kind) {
  const Dict& dict = call.self.AsDict();
  SLUICE_RETURN_IF_ERROR(call.context.budget().Visit(dict.size()));
  std::vector<Value> items;
  for (const Dict::Entry& entry : dict.entries()) {
    if (kind == ListKind::kItems) {
      SLUICE_ASSIGN_OR_RETURN(const Value pair, call.heap().NewList({entry.key, entry.value}, ListKind::kTuple));
      items.push_back(pair);
    } else {
      items.push_back(kind == ListKind::kKeys ? entry.key : entry.value);
    }
  }
  return call.heap().NewList(std::move(items), kind);
}
Result DictItems(const Invocation& call) { return DictView(call, ListKind::kItems); }
Result DictKeys(const Invocation& call) { return DictView(call, ListKind::kKeys); }
Result DictValues(const Invocation& call) { return DictView(call, ListKind::kValues); }

Result DictCopy(const Invocation& call) {
  SLUICE_ASSIGN_OR_RETURN(const Value copy, call.heap().NewDict());
  for (const Dict::Entry& entry : call.self.AsDict().entries()) {
    SLUICE_RETURN_IF_ERROR(call.heap().SetItem(copy.AsDict(), entry.key, entry.value));
  }
  return copy;
}

Result DictUpdate(const Invocation& call) {
  if (call.all.positional.size() > 1 || (call.all.positional.size() == 1 && !call.all.positional[0].is(Kind::kDict))) {
    return absl::InvalidArgumentError("update wants one dict");
  }
  std::vector<Dict::Entry> added;
  if (!call.all.positional.empty()) added = call.all.positional[0].AsDict().entries();
  for (const auto& [name, value] : call.all.keyword) {
    SLUICE_ASSIGN_OR_RETURN(const Value key, call.heap().NewString(name, Origin::kTemplate));
    added.push_back({key, value});
  }
  for (const Dict::Entry& entry : added) {
    SLUICE_RETURN_IF_ERROR(call.heap().SetItem(call.self.AsDict(), entry.key, entry.value));
  }
  return Value::None();
}

Result DictSetDefault(const Invocation& call) {
  SLUICE_RETURN_IF_ERROR(CheckKey(*call.args[0]));
  const Value* found = call.self.AsDict().Find(*call.args[0]);
  if (found != nullptr) return *found;
  if (call.args[0]->is(Kind::kList)) return absl::InvalidArgumentError("setdefault: a tuple cannot be a key");
  const Value value = call.args[1] != nullptr ? *call.args[1] : Value::None();
  SLUICE_RETURN_IF_ERROR(call.heap().SetItem(call.self.AsDict(), *call.args[0], value));
  return value;
}

Result DictPopItem(const Invocation& call) {
  Dict& dict = call.self.AsDict();
  if (dict.size() == 0) return absl::InvalidArgumentError("popitem: the dict is empty");
  const Dict::Entry last = dict.entries().back();
  SLUICE_RETURN_IF_ERROR(call.context.budget().Spend(static_cast<int64_t>(dict.size())));
  dict.Erase(last.key);
  return call.heap().NewList({last.key, last.value}, ListKind::kTuple);
}

Result DictClear(const Invocation& call) {
  call.self.AsDict().Clear();
  return Value::None();
}

Result DictPop(const Invocation& call) {
  Dict& dict = call.self.AsDict();
  const Value* found = dict.Find(*call.args[0]);
  if (found == nullptr) {
    if (call.args[1] != nullptr) return *call.args[1];
    return absl::InvalidArgumentError("pop: the dict has no such key");
  }
  SLUICE_RETURN_IF_ERROR(call.context.budget().Spend(static_cast<int64_t>(dict.size())));
  const Value popped = *found;
  dict.Erase(*call.args[0]);
  return popped;
}

constexpr Builtin kTupleMethods[] = {
    {"count", ListCount, {"value"}, 1},
    {"index", ListIndex, {"value", "start", "stop"}, 1},
};
constexpr Builtin kListMethods[] = {
    {"copy", ListCopy},
    {"count", ListCount, {"value"}, 1},
    {"index", ListIndex, {"value", "start", "stop"}, 1},
};
constexpr Builtin kListChanges[] = {
    {"append", ListAppend, {"value"}, 1},
    {"clear", ListClear},
    {"extend", ListExtend, {"iterable"}, 1},
    {"insert", ListInsert, {"index", "value"}, 2},
    {"pop", ListPop, {"index"}},
    {"remove", ListRemove, {"value"}, 1},
    {"reverse", ListReverse},
    {"sort", ListSort, {"reverse"}},
};
constexpr Builtin kDictMethods[] = {
    {"copy", DictCopy},     {"get", DictGet, {"key", "default"}, 1}, {"items", DictItems}, {"keys", DictKeys},
    {"values", DictValues},
};
constexpr Builtin kDictChanges[] = {
    {"clear", DictClear},
    {"pop", DictPop, {"key", "default"}, 1},
    {"popitem", DictPopItem},
    {"setdefault", DictSetDefault, {"key", "default"}, 1},
    {"update", DictUpdate, {}, 0, /*variadic=*/true},
};

}  // namespace

absl::Span<const Builtin> TupleMethods() { return kTupleMethods; }
absl::Span<const Builtin> ListMethods() { return kListMethods; }
absl::Span<const Builtin> ListChanges() { return kListChanges; }
absl::Span<const Builtin> DictMethods() { return kDictMethods; }
absl::Span<const Builtin> DictChanges() { return kDictChanges; }

}  // namespace sluice::jinja
