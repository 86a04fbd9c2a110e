// object.name and object[key]: methods, items, and what loops, macros and cyclers show of themselves.
#include <string>
#include <utility>
#include <vector>

#include "engine/base/status_macros.h"
#include "engine/text/jinja/ast.h"
#include "engine/text/jinja/builtins.h"
#include "engine/text/jinja/methods.h"
#include "engine/text/jinja/operators.h"

namespace sluice::jinja {
namespace {

using Result = absl::StatusOr<Value>;

const Builtin* FindIn(absl::Span<const Builtin> table, absl::string_view name) {
  for (const Builtin& builtin : table) {
    if (builtin.name == name) return &builtin;
  }
  return nullptr;
}

// A method that changes its object.
const Builtin* FindChange(const Value& object, absl::string_view name) {
  if (object.is(Kind::kDict)) return FindIn(DictChanges(), name);
  const bool is_list = object.is(Kind::kList) && object.AsList().kind == ListKind::kList;
  return is_list ? FindIn(ListChanges(), name) : nullptr;
}

bool IsFrozen(const Value& object) {
  return object.is(Kind::kDict) ? object.AsDict().frozen() : object.is(Kind::kList) && object.AsList().frozen;
}

// ---- loops

Result LoopCycle(const Invocation& call) {
  const auto& values = call.all.positional;
  if (values.empty()) return absl::InvalidArgumentError("cycle wants values");
  return values[call.self.AsLoop().index % values.size()];
}

Result LoopChanged(const Invocation& call) {
  Loop& loop = call.self.AsLoop();
  const std::vector<Value>& now = call.all.positional;
  bool changed = !loop.last_changed || loop.last_changed->size() != now.size();
  for (size_t i = 0; !changed && i < now.size(); ++i) {
    SLUICE_ASSIGN_OR_RETURN(const bool equal, Equal(now[i], (*loop.last_changed)[i], call.heap()));
    changed = !equal;
  }
  SLUICE_RETURN_IF_ERROR(call.context.budget().Build(now.size() * sizeof(Value)));
  loop.last_changed = now;
  return Value::Bool(changed);
}

constexpr Builtin kLoopMethods[] = {
    {"changed", LoopChanged, {}, 0, /*variadic=*/true},
    {"cycle", LoopCycle, {}, 0, /*variadic=*/true},
};

Result LoopAttribute(const Value& object, const Value& name, Heap& heap) {
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
  if (n == "depth") return Value::Int(loop.depth);
  if (n == "depth0") return Value::Int(loop.depth - 1);
  if (n == "previtem" && index > 0 && index <= size) return (*loop.items)[loop.index - 1];
  if (n == "nextitem" && index + 1 < size) return (*loop.items)[loop.index + 1];
  if (const Builtin* method = FindIn(kLoopMethods, n)) return heap.NewFunction({method, object});
  return Value::Undefined(&name.AsText());
}

// ---- cyclers: item 0 is the place, the others are what it cycles through

Value CyclerCurrent(const Value& cycler) {
  const auto& items = cycler.AsList().items;
  return items[1 + static_cast<size_t>(items[0].AsInt())];
}

Result CyclerNext(const Invocation& call) {
  auto& items = call.self.AsList().items;
  const Value current = CyclerCurrent(call.self);
  items[0] = Value::Int((items[0].AsInt() + 1) % static_cast<int64_t>(items.size() - 1));
  return current;
}

Result CyclerReset(const Invocation& call) {
  call.self.AsList().items[0] = Value::Int(0);
  return Value::None();
}

constexpr Builtin kCyclerMethods[] = {{"next", CyclerNext}, {"reset", CyclerReset}};

Result MacroAttribute(const Macro& macro, const Value& name, Heap& heap) {
  if (name.AsView() == "name") return heap.NewString(macro.definition->name.text->bytes, Origin::kTemplate);
  if (name.AsView() != "arguments") return Value::Undefined(&name.AsText());
  std::vector<Value> names;
  for (const MacroParameter& parameter : macro.definition->parameters) {
    SLUICE_ASSIGN_OR_RETURN(const Value text, heap.NewString(parameter.name.text->bytes, Origin::kTemplate));
    names.push_back(text);
  }
  return heap.NewList(std::move(names), ListKind::kTuple);
}

Result NumberAttribute(const Value& number, const Value& name, Heap& heap) {
  const absl::string_view n = name.AsView();
  const bool whole = number.IsWholeNumber();
  if (n == "real" || (whole && n == "numerator")) return ApplyUnary(UnaryOp::kPlus, number, heap);
  if (n == "imag") return whole ? Value::Int(0) : Value::Float(0);
  if (whole && n == "denominator") return Value::Int(1);
  return Value::Undefined(&name.AsText());
}

}  // namespace

const Builtin* FindMethod(const Value& object, absl::string_view name) {
  if (object.is(Kind::kString)) return FindIn(StringMethods(), name);
  if (object.is(Kind::kDict)) {
    const Builtin* method = FindIn(DictMethods(), name);
    return method != nullptr || object.AsDict().frozen() ? method : FindChange(object, name);
  }
  if (!object.is(Kind::kList)) return nullptr;
  switch (object.AsList().kind) {
    case ListKind::kList: {
      const Builtin* method = FindIn(ListMethods(), name);
      return method != nullptr || object.AsList().frozen ? method : FindChange(object, name);
    }
    case ListKind::kTuple:
    case ListKind::kGroup:
      return FindIn(TupleMethods(), name);
    default:
      return nullptr;
  }
}

Result GetAttribute(const Value& object, const Value& name, Heap& heap) {
  switch (object.kind()) {
    case Kind::kUndefined:
      if (name.AsView() == "__class__") return Value::Forbidden(&name.AsText());
      return UndefinedError(object);
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kBigInt:
    case Kind::kFloat:
      return NumberAttribute(object, name, heap);
    case Kind::kNamespace: {
      const Value* found = object.AsDict().Find(name);
      return found != nullptr ? *found : Value::Undefined(&name.AsText());
    }
    case Kind::kLoop:
      return LoopAttribute(object, name, heap);
    case Kind::kMacro:
      return MacroAttribute(object.AsMacro(), name, heap);
    case Kind::kCycler:
      if (name.AsView() == "current") return CyclerCurrent(object);
      if (const Builtin* method = FindIn(kCyclerMethods, name.AsView())) return heap.NewFunction({method, object});
      return Value::Undefined(&name.AsText());
    case Kind::kList:
      if (object.AsList().kind == ListKind::kGroup) {
        if (name.AsView() == "grouper") return object.AsList().items[0];
        if (name.AsView() == "list") return object.AsList().items[1];
      }
      break;
    default:
      break;
  }
  if (const Builtin* method = FindMethod(object, name.AsView())) return heap.NewFunction({method, object});
  if (IsFrozen(object) && FindChange(object, name.AsView()) != nullptr) return Value::Forbidden(&name.AsText());
  return FindItem(object, name, heap);
}

Result GetItem(const Value& object, const Value& key, Heap& heap) {
  if (object.is(Kind::kUndefined)) return UndefinedError(object);
  SLUICE_ASSIGN_OR_RETURN(const Value item, FindItem(object, key, heap));
  if (!item.is(Kind::kUndefined) || !key.is(Kind::kString)) return item;
  return object.is(Kind::kDict) && FindMethod(object, key.AsView()) == nullptr && !IsFrozen(object)
             ? Result(item)
             : GetAttribute(object, key, heap);
}

}  // namespace sluice::jinja
