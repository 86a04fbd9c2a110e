// The values of a running template: Python's, as far as templates can see them.
//
// A Value is a small copyable handle. What it points to (text, lists, dicts, ...) lives in the Heap of one render and
// dies with it as a whole, so values may form cycles and nothing is freed early; the Budget bounds what a render can
// allocate.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/text/jinja/budget.h"
#include "engine/text/jinja/text.h"

namespace sluice::jinja {

class Value;
class Dict;
struct List;
struct Loop;
struct Macro;
struct BoundFunction;
struct ForStatement;     // ast.h
struct MacroDefinition;  // ast.h
struct Scope;           // interpreter.h
struct Builtin;         // builtins.h

enum class Kind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kBigInt,  // an integer outside int64 (big_int.h)
  kFloat,
  kString,
  kList,
  kDict,
  kNamespace,
  kCycler,  // cycler('a', 'b'): a list of the place in it and what it cycles through
  kLoop,
  kMacro,
  kFunction,
};

class Value {
 public:
  Value() : kind_(Kind::kUndefined), text_(nullptr) {}
  // `name`: what was looked up, for the message when it is used; may be null.
  static Value Undefined(const Text* name) { return Value(Kind::kUndefined, name); }
  // What the sandbox does not let a template have: undefined, and its use says so.
  static Value Forbidden(const Text* name) {
    Value v(Kind::kUndefined, name);
    v.forbidden_ = true;
    return v;
  }
  static Value None() { return Value(Kind::kNone, static_cast<const Text*>(nullptr)); }
  static Value Bool(bool b) {
    Value v(Kind::kBool, static_cast<const Text*>(nullptr));
    v.int_ = b;
    return v;
  }
  static Value Int(int64_t i) {
    Value v(Kind::kInt, static_cast<const Text*>(nullptr));
    v.int_ = i;
    return v;
  }
  static Value Float(double d) {
    Value v(Kind::kFloat, static_cast<const Text*>(nullptr));
    v.float_ = d;
    return v;
  }
  static Value String(const Text* text) { return Value(Kind::kString, text); }
  static Value BigInt(const Text* digits) { return Value(Kind::kBigInt, digits); }
  static Value Of(struct List* list) { return Value(Kind::kList, list); }
  static Value Of(class Dict* dict) { return Value(Kind::kDict, dict); }
  static Value Namespace(class Dict* attributes) { return Value(Kind::kNamespace, attributes); }
  static Value Cycler(struct List* state) { return Value(Kind::kCycler, state); }
  static Value Of(struct Loop* loop) { return Value(Kind::kLoop, loop); }
  static Value Of(const struct Macro* macro) { return Value(Kind::kMacro, macro); }
  static Value Of(const struct BoundFunction* function) { return Value(Kind::kFunction, function); }

  // Marks a number, bool or none as coming from a user: its printed form then is user text.
  Value WithOrigin(Origin origin) const {
    Value v = *this;
    v.user_ = origin != Origin::kTemplate;
    return v;
  }
  Origin origin() const { return user_ ? Origin::kUser : Origin::kTemplate; }

  // Marks a string as HTML (the filters `safe` and `e`): operations of the string escape what is added to it. Templates
  // have few effects of it, and some by accident.
  Value AsMarkup() const {
    Value v = *this;
    v.markup_ = true;
    return v;
  }
  bool is_markup() const { return markup_; }
  // The same string as HTML if `other` is.
  Value MarkupLike(const Value& other) const { return other.markup_ ? AsMarkup() : *this; }
  bool is_forbidden() const { return forbidden_; }

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool IsInteger() const { return kind_ == Kind::kInt || kind_ == Kind::kBool; }  // what Python lets count as an int
  bool IsNumber() const { return IsInteger() || kind_ == Kind::kFloat; }          // of a machine's size
  bool IsWholeNumber() const { return IsInteger() || kind_ == Kind::kBigInt; }

  // REQUIRES for each: the kind that it names.
  bool AsBool() const { return int_ != 0; }
  int64_t AsInt() const { return int_; }  // kInt or kBool
  double AsFloat() const { return float_; }
  double ToFloat() const { return kind_ == Kind::kFloat ? float_ : static_cast<double>(int_); }  // IsNumber()
  const Text& AsText() const { return *text_; }                                                  // kString or kBigInt
  absl::string_view AsView() const { return text_->bytes; }
  const Text* UndefinedName() const { return text_; }
  struct List& AsList() const {
    return *list_;
  }                                              // kList or kCycler
  class Dict& AsDict() const { return *dict_; }  // kDict or kNamespace
  struct Loop& AsLoop() const { return *loop_; }
  const struct Macro& AsMacro() const { return *macro_; }
  const struct BoundFunction& AsFunction() const { return *function_; }

  // Same object, as Python's `is`; two strings of one text count.
  bool SameObject(const Value& other) const { return kind_ == other.kind_ && int_ == other.int_; }

 private:
  template <typename T>
  Value(Kind kind, T* pointer) : kind_(kind), int_(0) {
    Set(pointer);
  }
  void Set(const Text* p) { text_ = p; }
  void Set(struct List* p) { list_ = p; }
  void Set(class Dict* p) { dict_ = p; }
  void Set(struct Loop* p) { loop_ = p; }
  void Set(const struct Macro* p) { macro_ = p; }
  void Set(const struct BoundFunction* p) { function_ = p; }

  Kind kind_;
  bool user_ = false;
  bool markup_ = false;
  bool forbidden_ = false;
  union {
    int64_t int_;
    double float_;
    const Text* text_;
    struct List* list_;
    class Dict* dict_;
    struct Loop* loop_;
    const struct Macro* macro_;
    const struct BoundFunction* function_;
  };
};

// What Python would have made of it. All can be iterated; those up to kGroup have an index.
enum class ListKind : uint8_t {
  kList,
  kTuple,
  kGroup,     // of groupby: a tuple (grouper, list)
  kIterator,  // of map, select, ...: always true, has no length, and is empty after it was read once
  kKeys,
  kValues,
  kItems,
};

struct List {
  ListKind kind = ListKind::kList;
  std::vector<Value> items;
  bool frozen = false;  // belongs to the request: no method changes it
};

// A dict in insertion order.
class Dict {
 public:
  struct Entry {
    Value key;  // a string, number, bool, none or undefined
    Value value;
  };

  const std::vector<Entry>& entries() const { return entries_; }
  size_t size() const { return entries_.size(); }
  // Null if there is no such key.
  const Value* Find(const Value& key) const;
  const Value* Find(absl::string_view key) const;
  // Replaces the value of a key that exists (it keeps its place), or adds one.
  void Set(const Value& key, const Value& value);
  bool Erase(const Value& key);
  void Clear();

  // Belongs to the request: no method changes it.
  bool frozen() const { return frozen_; }
  void Freeze() { frozen_ = true; }

 private:
  std::optional<size_t> IndexOf(const Value& key) const;
  std::optional<size_t> IndexOf(absl::string_view key) const;

  bool frozen_ = false;
  std::vector<Entry> entries_;
  // Only once the dict is large.
  absl::flat_hash_map<absl::string_view, size_t> string_index_;
};

// The variable `loop` of one running {% for %}.
struct Loop {
  const std::vector<Value>* items = nullptr;  // of the list that is walked, or `own_items`
  std::vector<Value> own_items;
  size_t index = 0;  // from 0
  int depth = 1;     // of a recursive loop
  std::optional<std::vector<Value>> last_changed;  // what loop.changed() was last called with
  const ForStatement* recursive = nullptr;         // what loop(items) runs again, in `scope`
  Scope* scope = nullptr;
};

// A macro, or the body of a {% call %}, and the scope it was defined in, whose variables it sees as they are when it is
// called.
struct Macro {
  const MacroDefinition* definition = nullptr;
  Scope* scope = nullptr;
};

// A global function, or a method together with its object.
struct BoundFunction {
  const Builtin* builtin = nullptr;
  Value self;
};

// Owns what values point to. Every allocation is paid for first.
class Heap {
 public:
  explicit Heap(Budget& budget) : budget_(budget) {}
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  Budget& budget() { return budget_; }

  absl::StatusOr<Value> NewString(absl::string_view bytes, Origin origin);
  absl::StatusOr<Value> NewString(const TextSlice& slice);
  absl::StatusOr<Value> NewString(TextBuilder&& builder);
  absl::StatusOr<Value> NewBigInt(absl::string_view digits, Origin origin);
  absl::StatusOr<Value> NewList(std::vector<Value> items, ListKind kind = ListKind::kList);
  absl::StatusOr<Value> NewDict();
  absl::StatusOr<Value> NewNamespace();
  absl::StatusOr<Loop*> NewLoop();
  absl::StatusOr<Value> NewMacro(const Macro& macro);
  absl::StatusOr<Value> NewFunction(const BoundFunction& function);
  // Dict::Set and push_back, paid for.
  absl::Status SetItem(Dict& dict, const Value& key, const Value& value);
  absl::Status AppendItem(List& list, const Value& value);

 private:
  Budget& budget_;
  std::deque<Text> texts_;
  std::deque<List> lists_;
  std::deque<Dict> dicts_;
  std::deque<Loop> loops_;
  std::deque<Macro> macros_;
  std::deque<BoundFunction> functions_;
};

// Python's name of the type, for messages: 'int', 'str', 'dict', ...
absl::string_view TypeName(const Value& v);
bool IsTrue(const Value& v);
// Whether it can be a key of a dict.
bool IsHashable(const Value& v);
// Whose its printed form is.
Origin OriginOf(const Value& v);

}  // namespace sluice::jinja
