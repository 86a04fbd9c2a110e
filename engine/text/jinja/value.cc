#include "engine/text/jinja/value.h"

#include <utility>

#include "engine/base/status_macros.h"

namespace sluice::jinja {
namespace {

constexpr size_t kIndexedDictSize = 16;

// Equality of dict keys: numbers by value whatever their type, everything else by type and value.
bool SameKey(const Value& a, const Value& b) {
  if (a.IsNumber() && b.IsNumber()) {
    return a.IsInteger() && b.IsInteger() ? a.AsInt() == b.AsInt() : a.ToFloat() == b.ToFloat();
  }
  if (a.kind() != b.kind()) return false;
  if (a.is(Kind::kString) || a.is(Kind::kBigInt)) return a.AsView() == b.AsView();
  return a.is(Kind::kNone) || a.is(Kind::kUndefined) || a.SameObject(b);
}

}  // namespace

std::optional<size_t> Dict::IndexOf(absl::string_view key) const {
  if (entries_.size() > kIndexedDictSize) {
    auto it = string_index_.find(key);
    return it == string_index_.end() ? std::nullopt : std::optional<size_t>(it->second);
  }
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].key.is(Kind::kString) && entries_[i].key.AsView() == key) return i;
  }
  return std::nullopt;
}

std::optional<size_t> Dict::IndexOf(const Value& key) const {
  if (key.is(Kind::kString)) return IndexOf(key.AsView());
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (SameKey(entries_[i].key, key)) return i;
  }
  return std::nullopt;
}

const Value* Dict::Find(const Value& key) const {
  const auto index = IndexOf(key);
  return index ? &entries_[*index].value : nullptr;
}

const Value* Dict::Find(absl::string_view key) const {
  const auto index = IndexOf(key);
  return index ? &entries_[*index].value : nullptr;
}

void Dict::Set(const Value& key, const Value& value) {
  if (const auto index = IndexOf(key)) {
    entries_[*index].value = value;
    return;
  }
  entries_.push_back({key, value});
  if (entries_.size() <= kIndexedDictSize) return;
  const size_t first = string_index_.empty() ? 0 : entries_.size() - 1;
  for (size_t i = first; i < entries_.size(); ++i) {
    if (entries_[i].key.is(Kind::kString)) string_index_.emplace(entries_[i].key.AsView(), i);
  }
}

void Dict::Clear() {
  entries_.clear();
  string_index_.clear();
}

bool Dict::Erase(const Value& key) {
  const auto index = IndexOf(key);
  if (!index) return false;
  entries_.erase(entries_.begin() + static_cast<ptrdiff_t>(*index));
  string_index_.clear();
  if (entries_.size() > kIndexedDictSize) {
    for (size_t i = 0; i < entries_.size(); ++i) {
      if (entries_[i].key.is(Kind::kString)) string_index_.emplace(entries_[i].key.AsView(), i);
    }
  }
  return true;
}

absl::StatusOr<Value> Heap::NewString(absl::string_view bytes, Origin origin) {
  TextBuilder builder(budget_);
  builder.Append(bytes, origin);
  return NewString(std::move(builder));
}

absl::StatusOr<Value> Heap::NewString(const TextSlice& slice) {
  TextBuilder builder(budget_);
  builder.Append(slice);
  return NewString(std::move(builder));
}

absl::StatusOr<Value> Heap::NewString(TextBuilder&& builder) {
  SLUICE_RETURN_IF_ERROR(budget_.Build(sizeof(Text)));
  SLUICE_ASSIGN_OR_RETURN(Text text, std::move(builder).Finish());
  return Value::String(&texts_.emplace_back(std::move(text)));
}

absl::StatusOr<Value> Heap::NewBigInt(absl::string_view digits, Origin origin) {
  SLUICE_ASSIGN_OR_RETURN(Value text, NewString(digits, origin));
  return Value::BigInt(&text.AsText());
}

absl::StatusOr<Value> Heap::NewList(std::vector<Value> items, ListKind kind) {
  SLUICE_RETURN_IF_ERROR(budget_.Build(sizeof(List) + items.capacity() * sizeof(Value)));
  return Value::Of(&lists_.emplace_back(List{kind, std::move(items)}));
}

absl::StatusOr<Value> Heap::NewDict() {
  SLUICE_RETURN_IF_ERROR(budget_.Build(sizeof(Dict)));
  return Value::Of(&dicts_.emplace_back());
}

absl::StatusOr<Value> Heap::NewNamespace() {
  SLUICE_ASSIGN_OR_RETURN(Value dict, NewDict());
  return Value::Namespace(&dict.AsDict());
}

absl::StatusOr<Loop*> Heap::NewLoop() {
  SLUICE_RETURN_IF_ERROR(budget_.Build(sizeof(Loop)));
  return &loops_.emplace_back();
}

absl::StatusOr<Value> Heap::NewMacro(const Macro& macro) {
  SLUICE_RETURN_IF_ERROR(budget_.Build(sizeof(Macro)));
  return Value::Of(&macros_.emplace_back(macro));
}

absl::StatusOr<Value> Heap::NewFunction(const BoundFunction& function) {
  SLUICE_RETURN_IF_ERROR(budget_.Build(sizeof(BoundFunction)));
  return Value::Of(&functions_.emplace_back(function));
}

absl::Status Heap::SetItem(Dict& dict, const Value& key, const Value& value) {
  // Twice an entry for the vector's growth, and as much for the index of a large dict.
  SLUICE_RETURN_IF_ERROR(budget_.Build(2 * sizeof(Dict::Entry) + (dict.size() >= kIndexedDictSize ? 64 : 0)));
  if (!key.is(Kind::kString)) SLUICE_RETURN_IF_ERROR(budget_.Visit(dict.size()));
  dict.Set(key, value);
  return absl::OkStatus();
}

absl::Status Heap::AppendItem(List& list, const Value& value) {
  SLUICE_RETURN_IF_ERROR(budget_.Build(2 * sizeof(Value)));
  list.items.push_back(value);
  return absl::OkStatus();
}

absl::string_view TypeName(const Value& v) {
  switch (v.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
    case Kind::kBigInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return "str";
    case Kind::kList:
      switch (v.AsList().kind) {
        case ListKind::kList:
          return "list";
        case ListKind::kTuple:
        case ListKind::kGroup:
          return "tuple";
        case ListKind::kIterator:
          return "generator";
        case ListKind::kKeys:
          return "dict_keys";
        case ListKind::kValues:
          return "dict_values";
        case ListKind::kItems:
          return "dict_items";
      }
      return "list";
    case Kind::kDict:
      return "dict";
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kCycler:
      return "Cycler";
    case Kind::kLoop:
      return "LoopContext";
    case Kind::kMacro:
      return "Macro";
    case Kind::kFunction:
      return "function";
  }
  return "?";
}

bool IsTrue(const Value& v) {
  switch (v.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return v.AsInt() != 0;
    case Kind::kFloat:
      return v.AsFloat() != 0;
    case Kind::kString:
      return !v.AsView().empty();
    case Kind::kList:
      return v.AsList().kind == ListKind::kIterator || !v.AsList().items.empty();
    case Kind::kDict:
      return v.AsDict().size() != 0;
    default:
      return true;
  }
}

bool IsHashable(const Value& v) {
  const bool is_tuple = v.is(Kind::kList) && (v.AsList().kind == ListKind::kTuple || v.AsList().kind == ListKind::kGroup);
  return is_tuple || (!v.is(Kind::kDict) && !v.is(Kind::kList) && !v.is(Kind::kNamespace) && !v.is(Kind::kLoop));
}

Origin OriginOf(const Value& v) {
  return v.is(Kind::kString) || v.is(Kind::kBigInt) ? v.AsText().origin() : v.origin();
}

}  // namespace sluice::jinja
