// The filters of Jinja: `x | name`.
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/base/status_macros.h"
#include "engine/text/jinja/builtins.h"
#include "engine/text/jinja/json.h"
#include "engine/text/jinja/operators.h"
#include "engine/text/jinja/python_format.h"
#include "engine/text/jinja/strings.h"
#include "engine/text/jinja/unicode.h"

namespace sluice::jinja {
namespace {

using Result = absl::StatusOr<Value>;

bool Flag(const Invocation& call, size_t i) { return call.args[i] != nullptr && IsTrue(*call.args[i]); }
bool Given(const Invocation& call, size_t i) { return call.args[i] != nullptr && !call.args[i]->is(Kind::kNone); }

// ---- strings

Result Safe(const Invocation& call) {
  SLUICE_ASSIGN_OR_RETURN(const Value text, ToStr(call.self, call.heap()));
  return text.AsMarkup();
}
Result String(const Invocation& call) { return ToStr(call.self, call.heap()); }

Result Trim(const Invocation& call) {
  SLUICE_ASSIGN_OR_RETURN(const Value text, ToStr(call.self, call.heap()));
  std::optional<absl::string_view> chars;
  if (Given(call, 0)) {
    if (!call.args[0]->is(Kind::kString)) return absl::InvalidArgumentError("trim wants a string of characters");
    chars = call.args[0]->AsView();
  }
  SLUICE_ASSIGN_OR_RETURN(const TextSlice rest, Strip(text.AsText(), chars, Side::kBoth, call.heap()));
  SLUICE_ASSIGN_OR_RETURN(const Value trimmed, call.heap().NewString(rest));
  return text.is_markup() ? trimmed.AsMarkup() : trimmed;
}

template <Case to>
Result InCase(const Invocation& call) {
  SLUICE_ASSIGN_OR_RETURN(const Value text, ToStr(call.self, call.heap()));
  return ChangeCase(text.AsText(), to, call.heap());
}

Result ReplaceFilter(const Invocation& call) {
  SLUICE_ASSIGN_OR_RETURN(const Value text, ToStr(call.self, call.heap()));
  SLUICE_ASSIGN_OR_RETURN(const Value from, ToStr(*call.args[0], call.heap()));
  SLUICE_ASSIGN_OR_RETURN(const Value to, ToStr(*call.args[1], call.heap()));
  int64_t limit = -1;
  if (Given(call, 2)) {
    if (!call.args[2]->IsInteger()) return absl::InvalidArgumentError("replace wants an integer as its count");
    limit = call.args[2]->AsInt();
  }
  return Replace(text.AsText(), from.AsText(), to.AsText(), limit, call.heap());
}

// A width in spaces, or the indentation itself.
absl::StatusOr<Text> Indentation(const Value* width, int64_t otherwise, Heap& heap) {
  TextBuilder out(heap.budget());
  if (width != nullptr && width->is(Kind::kString)) {
    out.Append(width->AsText());
  } else if (width != nullptr && !width->IsInteger()) {
    return absl::InvalidArgumentError(
        absl::StrCat("an indentation is an integer or a string, found ", TypeName(*width)));
  } else {
    const int64_t spaces = std::max<int64_t>(width != nullptr ? width->AsInt() : otherwise, 0);
    SLUICE_RETURN_IF_ERROR(heap.budget().Visit(static_cast<size_t>(spaces)));
    for (int64_t i = 0; i < spaces && out.status().ok(); ++i) out.Append(" ", Origin::kTemplate);
  }
  return std::move(out).Finish();
}

Result IndentFilter(const Invocation& call) {
  SLUICE_ASSIGN_OR_RETURN(const Value text, ToStr(call.self, call.heap()));
  SLUICE_ASSIGN_OR_RETURN(const Text indentation, Indentation(call.args[0], 4, call.heap()));
  return Indent(text.AsText(), indentation, Flag(call, 1), Flag(call, 2), call.heap());
}

Result ToJsonFilter(const Invocation& call) {
  JsonStyle style;
  style.ensure_ascii = Flag(call, 0);
  style.sort_keys = Flag(call, 3);
  style.pretty = Given(call, 1);
  if (style.pretty) {
    SLUICE_ASSIGN_OR_RETURN(style.indent, Indentation(call.args[1], 0, call.heap()));
  }
  style.item_separator.bytes = style.pretty ? "," : ", ";
  style.key_separator.bytes = ": ";
  if (Given(call, 2)) {
    SLUICE_ASSIGN_OR_RETURN(const std::vector<Value> separators, Iterate(*call.args[2], call.heap()));
    if (separators.size() != 2 || !separators[0].is(Kind::kString) || !separators[1].is(Kind::kString)) {
      return absl::InvalidArgumentError("tojson: separators are two strings");
    }
    style.item_separator = separators[0].AsText();
    style.key_separator = separators[1].AsText();
  }
  TextBuilder out(call.context.budget());
  SLUICE_RETURN_IF_ERROR(ToJson(call.self, style, call.heap(), out));
  return call.heap().NewString(std::move(out));
}

// ---- scalars

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

// Python's int(text): blanks around and single underscores between digits are allowed.
std::optional<int64_t> ParseInt(absl::string_view text, int base) {
  std::string digits;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '_' && i > 0 && i + 1 < text.size() && absl::ascii_isalnum(text[i - 1])) continue;
    digits.push_back(text[i]);
  }
  const std::string trimmed(absl::StripAsciiWhitespace(digits));
  if (trimmed.empty()) return std::nullopt;
  char* end = nullptr;
  errno = 0;
  const long long value = std::strtoll(trimmed.c_str(), &end, base);
  if (errno != 0 || end != trimmed.c_str() + trimmed.size()) return std::nullopt;
  return value;
}

std::optional<double> ParseFloat(const Value& value) {
  double d = 0;
  if (value.IsNumber()) return value.ToFloat();
  if (value.is(Kind::kString) && absl::SimpleAtod(value.AsView(), &d)) return d;
  return std::nullopt;
}

Origin OriginOf(const Value& v) {
  return v.is(Kind::kString) ? (v.AsText().AllFromTemplate() ? Origin::kTemplate : Origin::kUser) : v.origin();
}

Result Int(const Invocation& call) {
  const Value& v = call.self;
  const Value otherwise = call.args[0] != nullptr ? *call.args[0] : Value::Int(0);
  const bool has_base = call.args[1] != nullptr && call.args[1]->IsInteger();
  const int64_t base = has_base ? call.args[1]->AsInt() : 10;
  if (v.is(Kind::kUndefined)) return UndefinedError(v);
  if (v.is(Kind::kBigInt)) return v;
  if (v.IsInteger()) return Value::Int(v.AsInt()).WithOrigin(v.origin());
  if (v.is(Kind::kString) && (base == 0 || (base >= 2 && base <= 36))) {
    if (const auto i = ParseInt(v.AsView(), static_cast<int>(base))) return Value::Int(*i).WithOrigin(OriginOf(v));
  }
  const auto d = ParseFloat(v);
  if (!d || !(std::abs(*d) < 9e18)) return otherwise;
  return Value::Int(static_cast<int64_t>(*d)).WithOrigin(OriginOf(v));
}

Result Float(const Invocation& call) {
  if (call.self.is(Kind::kUndefined)) return UndefinedError(call.self);
  const auto d = ParseFloat(call.self);
  if (d) return Value::Float(*d).WithOrigin(OriginOf(call.self));
  return call.args[0] != nullptr ? *call.args[0] : Value::Float(0.0);
}

Result Abs(const Invocation& call) {
  if (call.self.IsNumber() && call.self.ToFloat() < 0) return ApplyUnary(UnaryOp::kMinus, call.self);
  return ApplyUnary(UnaryOp::kPlus, call.self);
}

// ---- lists and dicts

// item.a.b.0 for the attribute "a.b.0" (or an integer); the item itself for no attribute.
Result Lookup(Value item, const Value* attribute, Heap& heap) {
  if (attribute == nullptr || attribute->is(Kind::kNone)) return item;
  if (attribute->IsInteger()) return GetItem(item, *attribute, heap);
  if (!attribute->is(Kind::kString))
    return absl::InvalidArgumentError("an attribute is named by a string or an integer");
  for (absl::string_view part : absl::StrSplit(attribute->AsView(), '.')) {
    int64_t index = 0;
    Value key = Value::Int(0);
    if (!part.empty() && part.find_first_not_of("0123456789") == absl::string_view::npos &&
        absl::SimpleAtoi(part, &index)) {
      key = Value::Int(index);
    } else {
      SLUICE_ASSIGN_OR_RETURN(key, heap.NewString(part, Origin::kTemplate));
    }
    SLUICE_ASSIGN_OR_RETURN(item, GetItem(item, key, heap));
  }
  return item;
}

// What sorting and unique compare: strings without their case, unless told otherwise.
Result SortKey(const Value& item, const Value* attribute, bool case_sensitive, Heap& heap) {
  SLUICE_ASSIGN_OR_RETURN(const Value key, Lookup(item, attribute, heap));
  return key.is(Kind::kString) && !case_sensitive ? ChangeCase(key.AsText(), Case::kLower, heap) : key;
}

struct Keyed {
  Value key, item;
};

// Stable merge sort; std::stable_sort cannot stop at a comparison that fails.
absl::Status SortByKey(std::vector<Keyed>* items, bool reverse, Heap& heap) {
  std::vector<Keyed> merged(items->size());
  for (size_t width = 1; width < items->size(); width *= 2) {
    for (size_t begin = 0; begin < items->size(); begin += 2 * width) {
      const size_t middle = std::min(begin + width, items->size()), end = std::min(begin + 2 * width, items->size());
      size_t a = begin, b = middle;
      for (size_t out = begin; out < end; ++out) {
        bool take_b = a == middle;
        if (a < middle && b < end) {
          const Value &first = (*items)[a].key, &second = (*items)[b].key;
          SLUICE_ASSIGN_OR_RETURN(take_b, reverse ? Less(first, second, heap) : Less(second, first, heap));
        }
        merged[out] = (*items)[take_b ? b++ : a++];
      }
    }
    items->swap(merged);
  }
  return absl::OkStatus();
}

Result SortedList(std::vector<Keyed> items, bool reverse, Heap& heap) {
  SLUICE_RETURN_IF_ERROR(SortByKey(&items, reverse, heap));
  std::vector<Value> sorted;
  for (const Keyed& k : items) sorted.push_back(k.item);
  return heap.NewList(std::move(sorted));
}

Result Sort(const Invocation& call) {
  Heap& heap = call.heap();
  SLUICE_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(call.self, heap));
  std::vector<Value> attributes;
  if (Given(call, 2) && call.args[2]->is(Kind::kString)) {
    for (absl::string_view name : absl::StrSplit(call.args[2]->AsView(), ',')) {
      SLUICE_ASSIGN_OR_RETURN(const Value attribute, heap.NewString(name, Origin::kTemplate));
      attributes.push_back(attribute);
    }
  } else {
    attributes.push_back(Given(call, 2) ? *call.args[2] : Value::None());
  }
  std::vector<Keyed> keyed;
  for (const Value& item : items) {
    std::vector<Value> keys;
    for (const Value& attribute : attributes) {
      SLUICE_ASSIGN_OR_RETURN(const Value key, SortKey(item, &attribute, Flag(call, 1), heap));
      keys.push_back(key);
    }
    SLUICE_ASSIGN_OR_RETURN(const Value key, heap.NewList(std::move(keys)));
    keyed.push_back({key, item});
  }
  return SortedList(std::move(keyed), Flag(call, 0), heap);
}

Result DictSort(const Invocation& call) {
  Heap& heap = call.heap();
  if (!call.self.is(Kind::kDict))
    return absl::InvalidArgumentError(absl::StrCat("a ", TypeName(call.self), " is no dict"));
  const bool by_value = Given(call, 1) && call.args[1]->is(Kind::kString) && call.args[1]->AsView() == "value";
  std::vector<Keyed> keyed;
  for (const Dict::Entry& entry : call.self.AsDict().entries()) {
    SLUICE_ASSIGN_OR_RETURN(const Value key, SortKey(by_value ? entry.value : entry.key, nullptr, Flag(call, 0), heap));
    SLUICE_ASSIGN_OR_RETURN(const Value pair, heap.NewList({entry.key, entry.value}, ListKind::kTuple));
    keyed.push_back({key, pair});
  }
  return SortedList(std::move(keyed), Flag(call, 2), heap);
}

template <bool want_least>
Result Extreme(const Invocation& call) {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(call.self, call.heap()));
  if (items.empty()) return Value();
  Keyed best;
  for (size_t i = 0; i < items.size(); ++i) {
    SLUICE_ASSIGN_OR_RETURN(const Value key, SortKey(items[i], call.args[1], Flag(call, 0), call.heap()));
    bool better = i == 0;
    if (i > 0) {
      SLUICE_ASSIGN_OR_RETURN(better, want_least ? Less(key, best.key, call.heap()) : Less(best.key, key, call.heap()));
    }
    if (better) best = {key, items[i]};
  }
  return best.item;
}

Result Unique(const Invocation& call) {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(call.self, call.heap()));
  SLUICE_ASSIGN_OR_RETURN(const Value seen, call.heap().NewDict());
  std::vector<Value> unique;
  for (const Value& item : items) {
    SLUICE_ASSIGN_OR_RETURN(const Value key, SortKey(item, call.args[1], Flag(call, 0), call.heap()));
    if (key.is(Kind::kList) || key.is(Kind::kDict))
      return absl::InvalidArgumentError("unique wants strings or numbers");
    if (seen.AsDict().Find(key) != nullptr) continue;
    SLUICE_RETURN_IF_ERROR(call.heap().SetItem(seen.AsDict(), key, Value::None()));
    unique.push_back(item);
  }
  return call.heap().NewList(std::move(unique), ListKind::kIterator);
}

Result Items(const Invocation& call) {
  if (call.self.is(Kind::kUndefined)) return call.heap().NewList({}, ListKind::kIterator);
  if (!call.self.is(Kind::kDict))
    return absl::InvalidArgumentError(absl::StrCat("a ", TypeName(call.self), " has no items"));
  SLUICE_ASSIGN_OR_RETURN(const Value items, Invoke(*FindMethod(call.self, "items"), call.context, call.self, {}));
  items.AsList().kind = ListKind::kIterator;
  return items;
}

Result ListFilter(const Invocation& call) {
  SLUICE_ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(call.self, call.heap()));
  return call.heap().NewList(std::move(items));
}

Result First(const Invocation& call) {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(call.self, call.heap()));
  return items.empty() ? Value() : items.front();
}
Result Last(const Invocation& call) {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(call.self, call.heap()));
  return items.empty() ? Value() : items.back();
}

Result Reverse(const Invocation& call) {
  if (call.self.is(Kind::kString)) return TakeSlice(call.self, std::nullopt, std::nullopt, -1, call.heap());
  SLUICE_ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(call.self, call.heap()));
  std::reverse(items.begin(), items.end());
  return call.heap().NewList(std::move(items), ListKind::kIterator);
}

Result Join(const Invocation& call) {
  Heap& heap = call.heap();
  SLUICE_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(call.self, heap));
  TextBuilder out(call.context.budget());
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0 && call.args[0] != nullptr) SLUICE_RETURN_IF_ERROR(AppendStr(*call.args[0], heap, out));
    SLUICE_ASSIGN_OR_RETURN(const Value item, Lookup(items[i], call.args[1], heap));
    SLUICE_RETURN_IF_ERROR(AppendStr(item, heap, out));
    SLUICE_RETURN_IF_ERROR(out.status());
  }
  return heap.NewString(std::move(out));
}

// The rest of the arguments from `first` on.
absl::StatusOr<CallArguments> Rest(const CallArguments& all, size_t first, Budget& budget) {
  SLUICE_RETURN_IF_ERROR(budget.Visit(all.positional.size()));
  CallArguments rest;
  rest.positional.assign(all.positional.begin() + static_cast<ptrdiff_t>(std::min(first, all.positional.size())),
                         all.positional.end());
  rest.keyword = all.keyword;
  return rest;
}

// map(attribute='a', default=x) or map('filter', arguments...). Whatever is false counts as empty, here and in select.
Result Map(const Invocation& call) {
  if (!IsTrue(call.self)) return call.heap().NewList({}, ListKind::kIterator);
  SLUICE_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(call.self, call.heap()));
  const Value* attribute = call.all.Keyword("attribute");
  const Value* otherwise = call.all.Keyword("default");
  const Builtin* filter = nullptr;
  if (attribute == nullptr) {
    if (call.all.positional.empty() || !call.all.positional[0].is(Kind::kString)) {
      return absl::InvalidArgumentError("map wants an attribute or the name of a filter");
    }
    filter = FindFilter(call.all.positional[0].AsView());
    if (filter == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("there is no filter '", call.all.positional[0].AsView(), "'"));
    }
  }
  SLUICE_ASSIGN_OR_RETURN(const CallArguments arguments, Rest(call.all, 1, call.context.budget()));
  std::vector<Value> mapped;
  for (const Value& item : items) {
    SLUICE_ASSIGN_OR_RETURN(Value result, filter != nullptr ? Invoke(*filter, call.context, item, arguments)
                                                            : Lookup(item, attribute, call.heap()));
    if (filter == nullptr && otherwise != nullptr && result.is(Kind::kUndefined)) result = *otherwise;
    mapped.push_back(result);
  }
  return call.heap().NewList(std::move(mapped), ListKind::kIterator);
}

// select and reject: the items for which a test (or their truth) gives `wanted`; with `by_attribute` an attribute is
// tested.
template <bool wanted, bool by_attribute>
Result Select(const Invocation& call) {
  if (!IsTrue(call.self)) return call.heap().NewList({}, ListKind::kIterator);
  SLUICE_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(call.self, call.heap()));
  const auto& args = call.all.positional;
  constexpr size_t kTestArg = by_attribute ? 1 : 0;
  if (by_attribute && args.empty()) return absl::InvalidArgumentError("selectattr and rejectattr want an attribute");
  const Builtin* test = nullptr;
  if (args.size() > kTestArg) {
    if (args[kTestArg].is(Kind::kString)) test = FindTest(args[kTestArg].AsView());
    if (test == nullptr) return absl::InvalidArgumentError("select and reject want the name of a test");
  }
  SLUICE_ASSIGN_OR_RETURN(const CallArguments arguments, Rest(call.all, kTestArg + 1, call.context.budget()));
  std::vector<Value> selected;
  for (const Value& item : items) {
    SLUICE_ASSIGN_OR_RETURN(Value tested, Lookup(item, by_attribute ? &args[0] : nullptr, call.heap()));
    if (test != nullptr) {
      SLUICE_ASSIGN_OR_RETURN(tested, Invoke(*test, call.context, tested, arguments));
    }
    if (IsTrue(tested) == wanted) selected.push_back(item);
  }
  return call.heap().NewList(std::move(selected), ListKind::kIterator);
}

constexpr Builtin kFilters[] = {
    {"abs", Abs},
    {"capitalize", InCase<Case::kCapitalized>},
    {"count", Length},
    {"d", Default, {"default_value", "boolean"}},
    {"default", Default, {"default_value", "boolean"}},
    {"dictsort", DictSort, {"case_sensitive", "by", "reverse"}},
    {"first", First},
    {"float", Float, {"default"}},
    {"indent", IndentFilter, {"width", "first", "blank"}},
    {"int", Int, {"default", "base"}},
    {"items", Items},
    {"join", Join, {"d", "attribute"}},
    {"last", Last},
    {"length", Length},
    {"list", ListFilter},
    {"lower", InCase<Case::kLower>},
    {"map", Map, {}, 0, /*variadic=*/true},
    {"max", Extreme<false>, {"case_sensitive", "attribute"}},
    {"min", Extreme<true>, {"case_sensitive", "attribute"}},
    {"reject", Select<false, false>, {}, 0, /*variadic=*/true},
    {"rejectattr", Select<false, true>, {}, 0, /*variadic=*/true},
    {"replace", ReplaceFilter, {"old", "new", "count"}, 2},
    {"reverse", Reverse},
    {"safe", Safe},
    {"select", Select<true, false>, {}, 0, /*variadic=*/true},
    {"selectattr", Select<true, true>, {}, 0, /*variadic=*/true},
    {"sort", Sort, {"reverse", "case_sensitive", "attribute"}},
    {"string", String},
    {"tojson", ToJsonFilter, {"ensure_ascii", "indent", "separators", "sort_keys"}},
    {"trim", Trim, {"chars"}},
    {"unique", Unique, {"case_sensitive", "attribute"}},
    {"upper", InCase<Case::kUpper>},
};

}  // namespace

const Builtin* FindFilter(absl::string_view name) {
  for (const Builtin& filter : kFilters) {
    if (filter.name == name) return &filter;
  }
  return nullptr;
}

}  // namespace sluice::jinja
