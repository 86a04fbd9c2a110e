// Filters of lists and dicts: sort, map, select, join, ...
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/base/status_macros.h"
#include "engine/text/jinja/filters.h"
#include "engine/text/jinja/operators.h"
#include "engine/text/jinja/python_format.h"
#include "engine/text/jinja/strings.h"

namespace sluice::jinja {
namespace {

using Result = absl::StatusOr<Value>;

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
  if (call.args[1] != nullptr &&
      (!call.args[1]->is(Kind::kString) || (call.args[1]->AsView() != "key" && call.args[1]->AsView() != "value"))) {
    return absl::InvalidArgumentError("dictsort sorts by 'key' or 'value'");
  }
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
  if (call.self.is(Kind::kList) && call.self.AsList().kind == ListKind::kIterator) {
    return absl::InvalidArgumentError("a generator has no last item; make a list of it first");
  }
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

// batch(n, fill): lists of n items.
Result Batch(const Invocation& call) {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(call.self, call.heap()));
  const bool is_number = call.args[0]->IsNumber();
  if (!is_number && Given(call, 1)) return absl::InvalidArgumentError("batch wants a number of items");
  const double size = is_number ? call.args[0]->ToFloat() : -1;  // no list has what is no number of items
  std::vector<Value> batches;
  std::vector<Value> batch;
  auto finish = [&]() -> absl::Status {
    SLUICE_ASSIGN_OR_RETURN(const Value list, call.heap().NewList(std::exchange(batch, {})));
    batches.push_back(list);
    return absl::OkStatus();
  };
  for (const Value& item : items) {
    SLUICE_RETURN_IF_ERROR(call.context.budget().Spend(1));
    if (static_cast<double>(batch.size()) == size) SLUICE_RETURN_IF_ERROR(finish());
    batch.push_back(item);
  }
  if (!batch.empty()) {
    if (Given(call, 1)) {
      const double missing = size - static_cast<double>(batch.size());
      if (missing > 0) {
        if (missing > 1e9) return absl::ResourceExhaustedError("batch: the batches are too large");
        SLUICE_RETURN_IF_ERROR(call.context.budget().Build(static_cast<size_t>(missing) * sizeof(Value)));
        SLUICE_RETURN_IF_ERROR(call.context.budget().Visit(static_cast<size_t>(missing)));
        batch.resize(batch.size() + static_cast<size_t>(missing), *call.args[1]);
      }
    }
    SLUICE_RETURN_IF_ERROR(finish());
  }
  return call.heap().NewList(std::move(batches), ListKind::kIterator);
}

// slice(n, fill): n lists; the first ones have an item more where they do not come out even.
Result SliceFilter(const Invocation& call) {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(call.self, call.heap()));
  if (!call.args[0]->IsInteger()) return absl::InvalidArgumentError("slice wants a number of lists");
  const int64_t slices = call.args[0]->AsInt();
  if (slices == 0) return absl::InvalidArgumentError("division by zero");
  std::vector<Value> result;
  if (slices > 0) SLUICE_RETURN_IF_ERROR(call.context.budget().Spend(slices));
  const auto size = static_cast<int64_t>(items.size());
  const int64_t each = slices > 0 ? size / slices : 0, longer = slices > 0 ? size % slices : 0;
  int64_t at = 0;
  for (int64_t i = 0; i < slices; ++i) {
    const int64_t end = at + each + (i < longer ? 1 : 0);
    std::vector<Value> slice(items.begin() + at, items.begin() + end);
    if (Given(call, 1) && i >= longer) slice.push_back(*call.args[1]);
    SLUICE_ASSIGN_OR_RETURN(const Value list, call.heap().NewList(std::move(slice)));
    result.push_back(list);
    at = end;
  }
  return call.heap().NewList(std::move(result), ListKind::kIterator);
}

// groupby(attribute): pairs (grouper, list) in the order of the groupers, which are those of the first items.
Result GroupBy(const Invocation& call) {
  Heap& heap = call.heap();
  SLUICE_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(call.self, heap));
  const bool case_sensitive = Flag(call, 2);
  auto key_of = [&](const Value& item, bool folded) -> Result {
    SLUICE_ASSIGN_OR_RETURN(Value key, Lookup(item, call.args[0], heap));
    if (key.is(Kind::kUndefined) && call.args[1] != nullptr) key = *call.args[1];
    return folded && key.is(Kind::kString) ? ChangeCase(key.AsText(), Case::kLower, heap) : key;
  };
  std::vector<Keyed> keyed;
  for (const Value& item : items) {
    SLUICE_ASSIGN_OR_RETURN(const Value key, key_of(item, !case_sensitive));
    keyed.push_back({key, item});
  }
  SLUICE_RETURN_IF_ERROR(SortByKey(&keyed, /*reverse=*/false, heap));
  std::vector<Value> groups;
  for (size_t begin = 0, end; begin < keyed.size(); begin = end) {
    std::vector<Value> group;
    for (end = begin; end < keyed.size(); ++end) {
      SLUICE_ASSIGN_OR_RETURN(const bool same, Equal(keyed[begin].key, keyed[end].key, heap));
      if (!same) break;
      group.push_back(keyed[end].item);
    }
    SLUICE_ASSIGN_OR_RETURN(const Value grouper, key_of(keyed[begin].item, false));
    SLUICE_ASSIGN_OR_RETURN(const Value list, heap.NewList(std::move(group)));
    SLUICE_ASSIGN_OR_RETURN(const Value pair, heap.NewList({grouper, list}, ListKind::kGroup));
    groups.push_back(pair);
  }
  return heap.NewList(std::move(groups));
}

// attr(name): the attribute, never an item.
Result Attr(const Invocation& call) {
  SLUICE_ASSIGN_OR_RETURN(const Value name, ToStr(*call.args[0], call.heap()));
  if (call.self.is(Kind::kDict)) {
    const Builtin* method = FindMethod(call.self, name.AsView());
    return method != nullptr ? GetAttribute(call.self, name, call.heap()) : Result(Value::Undefined(&name.AsText()));
  }
  return GetAttribute(call.self, name, call.heap());
}

constexpr Builtin kListFilters[] = {
    {"attr", Attr, {"name"}, 1},
    {"batch", Batch, {"linecount", "fill_with"}, 1},
    {"dictsort", DictSort, {"case_sensitive", "by", "reverse"}},
    {"first", First},
    {"groupby", GroupBy, {"attribute", "default", "case_sensitive"}, 1},
    {"items", Items},
    {"join", Join, {"d", "attribute"}},
    {"last", Last},
    {"list", ListFilter},
    {"map", Map, {}, 0, /*variadic=*/true},
    {"max", Extreme<false>, {"case_sensitive", "attribute"}},
    {"min", Extreme<true>, {"case_sensitive", "attribute"}},
    {"reject", Select<false, false>, {}, 0, /*variadic=*/true},
    {"rejectattr", Select<false, true>, {}, 0, /*variadic=*/true},
    {"reverse", Reverse},
    {"select", Select<true, false>, {}, 0, /*variadic=*/true},
    {"selectattr", Select<true, true>, {}, 0, /*variadic=*/true},
    {"slice", SliceFilter, {"slices", "fill_with"}, 1},
    {"sort", Sort, {"reverse", "case_sensitive", "attribute"}},
    {"unique", Unique, {"case_sensitive", "attribute"}},
};

}  // namespace

absl::Span<const Builtin> ListFilters() { return kListFilters; }

}  // namespace sluice::jinja
