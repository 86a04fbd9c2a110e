// Methods of strings, lists and dicts, and attribute access, which finds them.
#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
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

absl::Status WantsString(absl::string_view what, const Value& found) {
  return absl::InvalidArgumentError(absl::StrCat(what, " wants a string, found ", TypeName(found)));
}

// The argument `i` if it was given and is not none.
absl::StatusOr<std::optional<absl::string_view>> OptionalString(const Invocation& call, size_t i,
                                                                absl::string_view what) {
  const Value* arg = call.args[i];
  if (arg == nullptr || arg->is(Kind::kNone)) return std::nullopt;
  if (!arg->is(Kind::kString)) return WantsString(what, *arg);
  return std::optional(arg->AsView());
}

absl::StatusOr<int64_t> OptionalInt(const Invocation& call, size_t i, int64_t otherwise, absl::string_view what) {
  const Value* arg = call.args[i];
  if (arg == nullptr) return otherwise;
  if (!arg->IsInteger()) {
    return absl::InvalidArgumentError(absl::StrCat(what, " wants an integer, found ", TypeName(*arg)));
  }
  return arg->AsInt();
}

// ---- strings

Result StripSide(const Invocation& call, Side side) {
  SLUICE_ASSIGN_OR_RETURN(const auto chars, OptionalString(call, 0, "strip"));
  SLUICE_ASSIGN_OR_RETURN(const TextSlice rest, Strip(call.self.AsText(), chars, side, call.heap()));
  return call.heap().NewString(rest);
}
Result StrStrip(const Invocation& call) { return StripSide(call, Side::kBoth); }
Result StrLstrip(const Invocation& call) { return StripSide(call, Side::kLeft); }
Result StrRstrip(const Invocation& call) { return StripSide(call, Side::kRight); }

Result SplitSide(const Invocation& call, bool from_right) {
  SLUICE_ASSIGN_OR_RETURN(const auto separator, OptionalString(call, 0, "split"));
  SLUICE_ASSIGN_OR_RETURN(const int64_t limit, OptionalInt(call, 1, -1, "split"));
  SLUICE_ASSIGN_OR_RETURN(const auto parts, Split(call.self.AsText(), separator, limit, from_right, call.heap()));
  return ToStrings(parts, call.heap());
}
Result StrSplit(const Invocation& call) { return SplitSide(call, false); }
Result StrRsplit(const Invocation& call) { return SplitSide(call, true); }

Result StrSplitlines(const Invocation& call) {
  const bool keep_ends = call.args[0] != nullptr && IsTrue(*call.args[0]);
  SLUICE_ASSIGN_OR_RETURN(const auto lines, SplitLines(Whole(call.self.AsText()), keep_ends, call.heap()));
  return ToStrings(lines, call.heap());
}

// startswith and endswith: `matches` is asked for the argument, or for each item if it is a tuple.
template <typename Matches>
Result HasAffix(const Invocation& call, absl::string_view what, Matches matches) {
  const Value& affix = *call.args[0];
  std::vector<Value> candidates = {affix};
  if (affix.is(Kind::kList) && affix.AsList().kind == ListKind::kTuple) candidates = affix.AsList().items;
  for (const Value& candidate : candidates) {
    if (!candidate.is(Kind::kString)) return WantsString(what, candidate);
    SLUICE_RETURN_IF_ERROR(call.heap().budget().Scan(candidate.AsView().size()));
    if (matches(call.self.AsView(), candidate.AsView())) return Value::Bool(true);
  }
  return Value::Bool(false);
}
Result StrStartswith(const Invocation& call) {
  return HasAffix(call, "startswith", [](absl::string_view s, absl::string_view p) { return absl::StartsWith(s, p); });
}
Result StrEndswith(const Invocation& call) {
  return HasAffix(call, "endswith", [](absl::string_view s, absl::string_view p) { return absl::EndsWith(s, p); });
}

Result StrRemoveprefix(const Invocation& call) {
  SLUICE_ASSIGN_OR_RETURN(const auto prefix, OptionalString(call, 0, "removeprefix"));
  if (!prefix || !absl::StartsWith(call.self.AsView(), *prefix)) return call.self;
  return call.heap().NewString(TextSlice{&call.self.AsText(), prefix->size(), call.self.AsView().size()});
}
Result StrRemovesuffix(const Invocation& call) {
  SLUICE_ASSIGN_OR_RETURN(const auto suffix, OptionalString(call, 0, "removesuffix"));
  if (!suffix || !absl::EndsWith(call.self.AsView(), *suffix)) return call.self;
  return call.heap().NewString(TextSlice{&call.self.AsText(), 0, call.self.AsView().size() - suffix->size()});
}

Result StrReplace(const Invocation& call) {
  for (size_t i : {0, 1}) {
    if (!call.args[i]->is(Kind::kString)) return WantsString("replace", *call.args[i]);
  }
  SLUICE_ASSIGN_OR_RETURN(const int64_t limit, OptionalInt(call, 2, -1, "replace"));
  return Replace(call.self.AsText(), call.args[0]->AsText(), call.args[1]->AsText(), limit, call.heap());
}

Result StrUpper(const Invocation& call) { return ChangeCase(call.self.AsText(), Case::kUpper, call.heap()); }
Result StrLower(const Invocation& call) { return ChangeCase(call.self.AsText(), Case::kLower, call.heap()); }
Result StrCapitalize(const Invocation& call) { return ChangeCase(call.self.AsText(), Case::kCapitalized, call.heap()); }

Result StrJoin(const Invocation& call) {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(*call.args[0], call.heap()));
  TextBuilder out(call.context.budget());
  for (size_t i = 0; i < items.size() && out.status().ok(); ++i) {
    if (!items[i].is(Kind::kString)) return WantsString("join", items[i]);
    if (i > 0) out.Append(call.self.AsText());
    out.Append(items[i].AsText());
  }
  return call.heap().NewString(std::move(out));
}

Result StrFind(const Invocation& call) {
  SLUICE_ASSIGN_OR_RETURN(const auto needle, OptionalString(call, 0, "find"));
  if (!needle) return WantsString("find", Value::None());
  const absl::string_view s = call.self.AsView();
  SLUICE_RETURN_IF_ERROR(call.context.budget().Visit(s.size()));
  const void* found = memmem(s.data(), s.size(), needle->data(), needle->size());
  if (found == nullptr) return Value::Int(-1);
  const auto bytes = static_cast<size_t>(static_cast<const char*>(found) - s.data());
  return Value::Int(static_cast<int64_t>(CountChars(s.substr(0, bytes))));
}

Result StrCount(const Invocation& call) {
  SLUICE_ASSIGN_OR_RETURN(const auto needle, OptionalString(call, 0, "count"));
  if (!needle) return WantsString("count", Value::None());
  if (needle->empty()) return Value::Int(static_cast<int64_t>(CountChars(call.self.AsView()) + 1));
  SLUICE_ASSIGN_OR_RETURN(const auto parts, Split(call.self.AsText(), needle, -1, false, call.heap()));
  return Value::Int(static_cast<int64_t>(parts.size()) - 1);
}

Result StrIsdigit(const Invocation& call) {
  const absl::string_view s = call.self.AsView();
  return Value::Bool(!s.empty() && s.find_first_not_of("0123456789") == absl::string_view::npos);
}

// One replacement field, without its braces: empty, a number or a name.
absl::StatusOr<Value> FormatField(const Invocation& call, absl::string_view field, size_t* next) {
  if (field.find_first_of(".[!:{") != absl::string_view::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("format: '{", field, "}' is not supported, only '{}', '{0}' and '{name}'"));
  }
  size_t index = *next;
  if (field.empty()) {
    ++*next;
  } else if (!absl::SimpleAtoi(field, &index)) {
    const Value* named = call.all.Keyword(field);
    if (named == nullptr) return absl::InvalidArgumentError(absl::StrCat("format: there is no argument '", field, "'"));
    return *named;
  }
  if (index >= call.all.positional.size()) return absl::InvalidArgumentError("format: there are too few arguments");
  return call.all.positional[index];
}

Result StrFormat(const Invocation& call) {
  const Text& text = call.self.AsText();
  const absl::string_view s = text.bytes;
  TextBuilder out(call.context.budget());
  size_t next = 0;
  for (size_t pos = 0; pos < s.size();) {
    const size_t brace = std::min(s.find_first_of("{}", pos), s.size());
    out.Append(TextSlice{&text, pos, brace});
    if (brace == s.size()) break;
    if (brace + 1 < s.size() && s[brace + 1] == s[brace]) {
      out.Append(TextSlice{&text, brace, brace + 1});
      pos = brace + 2;
      continue;
    }
    const size_t close = s.find('}', brace + 1);
    if (s[brace] == '}' || close == absl::string_view::npos)
      return absl::InvalidArgumentError("format: a brace stands alone");
    SLUICE_ASSIGN_OR_RETURN(const Value value, FormatField(call, s.substr(brace + 1, close - brace - 1), &next));
    SLUICE_RETURN_IF_ERROR(AppendStr(value, call.heap(), out));
    SLUICE_RETURN_IF_ERROR(out.status());
    pos = close + 1;
  }
  return call.heap().NewString(std::move(out));
}

// ---- lists. Jinja's sandbox forbids to change them; templates that collect call ids this way (Kimi K2) need it.

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

Result ListIndex(const Invocation& call) {
  const List& list = call.self.AsList();
  for (size_t i = 0; i < list.items.size(); ++i) {
    SLUICE_ASSIGN_OR_RETURN(const bool equal, Equal(list.items[i], *call.args[0], call.heap()));
    if (equal) return Value::Int(static_cast<int64_t>(i));
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

Result DictGet(const Invocation& call) {
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

constexpr Builtin kStringMethods[] = {
    {"capitalize", StrCapitalize},
    {"count", StrCount, {"sub"}, 1},
    {"endswith", StrEndswith, {"suffix"}, 1},
    {"find", StrFind, {"sub"}, 1},
    {"format", StrFormat, {}, 0, /*variadic=*/true},
    {"isdigit", StrIsdigit},
    {"join", StrJoin, {"iterable"}, 1},
    {"lower", StrLower},
    {"lstrip", StrLstrip, {"chars"}},
    {"removeprefix", StrRemoveprefix, {"prefix"}, 1},
    {"removesuffix", StrRemovesuffix, {"suffix"}, 1},
    {"replace", StrReplace, {"old", "new", "count"}, 2},
    {"rsplit", StrRsplit, {"sep", "maxsplit"}},
    {"rstrip", StrRstrip, {"chars"}},
    {"split", StrSplit, {"sep", "maxsplit"}},
    {"splitlines", StrSplitlines, {"keepends"}},
    {"startswith", StrStartswith, {"prefix"}, 1},
    {"strip", StrStrip, {"chars"}},
    {"upper", StrUpper},
};
constexpr Builtin kTupleMethods[] = {
    {"count", ListCount, {"value"}, 1},
    {"index", ListIndex, {"value"}, 1},
};
constexpr Builtin kListMethods[] = {
    {"append", ListAppend, {"value"}, 1},
    {"count", ListCount, {"value"}, 1},
    {"index", ListIndex, {"value"}, 1},
    {"pop", ListPop, {"index"}},
};
constexpr Builtin kDictMethods[] = {
    {"copy", DictCopy},     {"get", DictGet, {"key", "default"}, 1}, {"items", DictItems},
    {"keys", DictKeys},     {"pop", DictPop, {"key", "default"}, 1}, {"update", DictUpdate, {}, 0, /*variadic=*/true},
    {"values", DictValues},
};

const Builtin* FindIn(absl::Span<const Builtin> table, absl::string_view name) {
  for (const Builtin& builtin : table) {
    if (builtin.name == name) return &builtin;
  }
  return nullptr;
}

}  // namespace

const Builtin* FindMethod(const Value& object, absl::string_view name) {
  if (object.is(Kind::kString)) return FindIn(kStringMethods, name);
  if (object.is(Kind::kDict)) return FindIn(kDictMethods, name);
  if (!object.is(Kind::kList)) return nullptr;
  if (object.AsList().kind == ListKind::kList) return FindIn(kListMethods, name);
  return object.AsList().kind == ListKind::kTuple ? FindIn(kTupleMethods, name) : nullptr;
}

Result GetAttribute(const Value& object, const Value& name, Heap& heap) {
  switch (object.kind()) {
    case Kind::kUndefined:
      return UndefinedError(object);
    case Kind::kNamespace: {
      const Value* found = object.AsDict().Find(name);
      return found != nullptr ? *found : Value::Undefined(&name.AsText());
    }
    case Kind::kLoop: {
      const Loop& loop = object.AsLoop();
      const auto index = static_cast<int64_t>(loop.index);
      const auto size = static_cast<int64_t>(loop.items->size());
      const absl::string_view n = name.AsView();
      if (n == "index") return Value::Int(index + 1);
      if (n == "index0") return Value::Int(index);
      if (n == "revindex") return Value::Int(size - index);
      if (n == "revindex0") return Value::Int(size - index - 1);
      if (n == "first") return Value::Bool(index == 0);
      if (n == "last") return Value::Bool(index + 1 >= size);
      if (n == "length") return Value::Int(size);
      if (n == "depth") return Value::Int(1);
      if (n == "depth0") return Value::Int(0);
      if (n == "previtem" && index > 0 && index <= size) return (*loop.items)[loop.index - 1];
      if (n == "nextitem" && index + 1 < size) return (*loop.items)[loop.index + 1];
      return Value::Undefined(&name.AsText());
    }
    default:
      break;
  }
  if (const Builtin* method = FindMethod(object, name.AsView())) return heap.NewFunction({method, object});
  return FindItem(object, name, heap);
}

Result GetItem(const Value& object, const Value& key, Heap& heap) {
  if (object.is(Kind::kUndefined)) return UndefinedError(object);
  SLUICE_ASSIGN_OR_RETURN(const Value item, FindItem(object, key, heap));
  if (!item.is(Kind::kUndefined) || !key.is(Kind::kString)) return item;
  if (object.is(Kind::kNamespace) || object.is(Kind::kLoop)) return GetAttribute(object, key, heap);
  if (const Builtin* method = FindMethod(object, key.AsView())) return heap.NewFunction({method, object});
  return item;
}

}  // namespace sluice::jinja
