// Walks the syntax tree of a template.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/text/jinja/ast.h"
#include "engine/text/jinja/builtins.h"
#include "engine/text/jinja/value.h"

namespace sluice::jinja {

// Variables of one loop iteration, macro call or block. The outermost scope has a slot for every identifier of the
// template; the others are short lists.
struct Scope {
  Scope* parent = nullptr;
  bool captured = false;  // a macro refers to it, so it stays until the render ends
  std::vector<std::pair<size_t, Value>> variables;
};

class Interpreter {
 public:
  Interpreter(const Ast& ast, CallContext context);

  // Sets a variable of the outermost scope; ignored if the template never names it.
  void SetVariable(absl::string_view name, const Value& value);
  // Renders the whole template.
  absl::Status Run(TextBuilder& out);

 private:
  enum class Flow { kNext, kBreak, kContinue };
  class LocalScope;

  // ---- statements
  absl::StatusOr<Flow> Execute(const Body& body, Scope* scope, TextBuilder& out);
  absl::StatusOr<Flow> Do(const TextStatement& s, const Position& at, Scope* scope, TextBuilder& out);
  absl::StatusOr<Flow> Do(const PrintStatement& s, const Position& at, Scope* scope, TextBuilder& out);
  absl::StatusOr<Flow> Do(const IfStatement& s, const Position& at, Scope* scope, TextBuilder& out);
  absl::StatusOr<Flow> Do(const ForStatement& s, const Position& at, Scope* scope, TextBuilder& out);
  absl::StatusOr<Flow> Do(const SetStatement& s, const Position& at, Scope* scope, TextBuilder& out);
  absl::StatusOr<Flow> Do(const SetBlockStatement& s, const Position& at, Scope* scope, TextBuilder& out);
  absl::StatusOr<Flow> Do(const MacroStatement& s, const Position& at, Scope* scope, TextBuilder& out);
  absl::StatusOr<Flow> Do(const CallStatement& s, const Position& at, Scope* scope, TextBuilder& out);
  absl::StatusOr<Flow> Do(const WithStatement& s, const Position& at, Scope* scope, TextBuilder& out);
  absl::StatusOr<Flow> Do(const BlockStatement& s, const Position& at, Scope* scope, TextBuilder& out);
  absl::StatusOr<Flow> Do(const FilterStatement& s, const Position& at, Scope* scope, TextBuilder& out);
  absl::StatusOr<Flow> Do(const ScopeStatement& s, const Position& at, Scope* scope, TextBuilder& out);
  absl::StatusOr<Flow> Do(const BreakStatement& s, const Position& at, Scope* scope, TextBuilder& out);
  absl::StatusOr<Flow> Do(const ContinueStatement& s, const Position& at, Scope* scope, TextBuilder& out);

  absl::StatusOr<Value> RenderFiltered(const Body& body, const std::vector<FilterCall>& filters, Scope* scope);
  absl::Status PrepareLoop(const ForStatement& s, const Value& iterable, const Position& at, Scope* scope, Loop* loop);
  absl::StatusOr<Flow> RunLoop(const ForStatement& s, const Value& iterable, int depth, const Position& at,
                               Scope* scope, TextBuilder& out);
  // Marks the scope and those around it as staying until the render ends.
  absl::Status Capture(Scope* scope, const Position& at);
  absl::Status Assign(const Target& target, const Value& value, const Position& at, Scope* scope);

  // ---- expressions
  absl::StatusOr<Value> Evaluate(const Expression& e, Scope* scope);
  absl::StatusOr<Value> Get(const Literal& e, const Position& at, Scope* scope);
  absl::StatusOr<Value> Get(const Variable& e, const Position& at, Scope* scope);
  absl::StatusOr<Value> Get(const Attribute& e, const Position& at, Scope* scope);
  absl::StatusOr<Value> Get(const Item& e, const Position& at, Scope* scope);
  absl::StatusOr<Value> Get(const Slice& e, const Position& at, Scope* scope);
  absl::StatusOr<Value> Get(const ListDisplay& e, const Position& at, Scope* scope);
  absl::StatusOr<Value> Get(const DictDisplay& e, const Position& at, Scope* scope);
  absl::StatusOr<Value> Get(const Unary& e, const Position& at, Scope* scope);
  absl::StatusOr<Value> Get(const Arithmetic& e, const Position& at, Scope* scope);
  absl::StatusOr<Value> Get(const Logic& e, const Position& at, Scope* scope);
  absl::StatusOr<Value> Get(const Concatenation& e, const Position& at, Scope* scope);
  absl::StatusOr<Value> Get(const Comparison& e, const Position& at, Scope* scope);
  absl::StatusOr<Value> Get(const Conditional& e, const Position& at, Scope* scope);
  absl::StatusOr<Value> Get(const Call& e, const Position& at, Scope* scope);
  absl::StatusOr<Value> Get(const Filtered& e, const Position& at, Scope* scope);
  absl::StatusOr<Value> Get(const Test& e, const Position& at, Scope* scope);

  absl::StatusOr<CallArguments> EvaluateArguments(const Arguments& arguments, const Position& at, Scope* scope);
  absl::StatusOr<Value> CallValue(const Value& callee, const CallArguments& arguments, const Position& at);
  // Variables of a macro's call beyond its parameters: caller, kwargs, varargs.
  absl::Status SetExtraArguments(const MacroDefinition& macro, const CallArguments& arguments, const Position& at,
                                 Scope* scope);
  absl::StatusOr<std::optional<int64_t>> SliceBound(const ExpressionPtr& e, const Position& at, Scope* scope);
  absl::StatusOr<Value> ApplyFilter(const FilterCall& filter, const Value& operand, Scope* scope);
  absl::StatusOr<Value> CallMacro(const Macro& macro, const CallArguments& arguments, const Position& at);

  // ---- scopes
  Scope* NewScope(Scope* parent);
  void Release(Scope* scope);
  const Value* Find(size_t id, const Scope* scope) const;
  void Set(size_t id, const Value& value, Scope* scope);

  const Ast& ast_;
  CallContext context_;
  Heap& heap_;
  std::vector<Value> globals_;  // the variables of `root_`, by identifier
  Scope root_;
  std::deque<Scope> scopes_;
  std::vector<Scope*> free_scopes_;
};

}  // namespace sluice::jinja
