// What templates can call without defining it: filters (x|name), tests (x is name), methods (x.name()) and functions.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/civil_time.h"
#include "absl/types/span.h"
#include "engine/text/jinja/value.h"

namespace sluice::jinja {

struct CallArguments {
  std::vector<Value> positional;
  std::vector<std::pair<absl::string_view, Value>> keyword;

  const Value* Keyword(absl::string_view name) const;
};

struct CallContext {
  Heap& heap;
  absl::CivilSecond now;  // for strftime_now

  Budget& budget() const { return heap.budget(); }
};

// `self` is what a filter or test is applied to, or the object of a method; `args` has one value per name in
// `parameters`, null where the call gave none. Variadic ones get everything in `all` and an empty `args`.
struct Invocation {
  CallContext& context;
  const Value& self;
  absl::Span<const Value* const> args;
  const CallArguments& all;

  Heap& heap() const { return context.heap; }
};

struct Builtin {
  using Function = absl::StatusOr<Value> (*)(const Invocation&);
  absl::string_view name;
  Function function;
  static constexpr size_t kMaxParameters = 4;
  absl::string_view parameters[kMaxParameters] = {};
  size_t num_required = 0;
  bool variadic = false;
  bool speaks_for_itself = false;  // its errors are the template's own words: no position is added
};

// Null if there is none of that name.
const Builtin* FindFilter(absl::string_view name);
const Builtin* FindTest(absl::string_view name);
const Builtin* FindFunction(absl::string_view name);
// Of a string, list, tuple or dict.
const Builtin* FindMethod(const Value& object, absl::string_view name);

// Matches arguments with parameters and calls. INVALID_ARGUMENT for arguments that do not fit.
absl::StatusOr<Value> Invoke(const Builtin& builtin, CallContext& context, const Value& self,
                             const CallArguments& arguments);

// object.name: methods first, then items. object[name]: the other way round. Undefined if there is neither.
absl::StatusOr<Value> GetAttribute(const Value& object, const Value& name, Heap& heap);
absl::StatusOr<Value> GetItem(const Value& object, const Value& key, Heap& heap);

}  // namespace sluice::jinja
