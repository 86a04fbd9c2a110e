#include "engine/text/jinja/interpreter.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/text/jinja/operators.h"
#include "engine/text/jinja/python_format.h"

namespace sluice::jinja {
namespace {

// Adds the place to the error of an operation; from then on it is the template's fault, not the caller's.
absl::Status At(const Position& at, const absl::Status& status) {
  if (status.ok()) return status;
  const bool failed = status.code() == absl::StatusCode::kInvalidArgument;
  return absl::Status(failed ? absl::StatusCode::kFailedPrecondition : status.code(),
                      absl::StrCat("chat template, line ", at.line, ": ", status.message()));
}

template <typename T>
absl::StatusOr<T> At(const Position& at, absl::StatusOr<T> result) {
  if (!result.ok()) return At(at, result.status());
  return result;
}

absl::StatusOr<Value> Bool(absl::StatusOr<bool> b) {
  if (!b.ok()) return b.status();
  return Value::Bool(*b);
}

}  // namespace

// A scope for as long as it lives, and longer if a macro captured it.
class Interpreter::LocalScope {
 public:
  LocalScope(Interpreter* interpreter, Scope* parent)
      : interpreter_(*interpreter), scope_(interpreter->NewScope(parent)) {}
  ~LocalScope() { interpreter_.Release(scope_); }
  LocalScope(const LocalScope&) = delete;
  LocalScope& operator=(const LocalScope&) = delete;

  Scope* get() const { return scope_; }
  // Forgets all variables.
  void Renew() {
    Scope* parent = scope_->parent;
    interpreter_.Release(scope_);
    scope_ = interpreter_.NewScope(parent);
  }

 private:
  Interpreter& interpreter_;
  Scope* scope_;
};

Interpreter::Interpreter(const Ast& ast, CallContext context)
    : ast_(ast), context_(context), heap_(context.heap), globals_(ast.identifiers.size()) {}

void Interpreter::SetVariable(absl::string_view name, const Value& value) {
  const auto it = ast_.identifiers.find(name);
  if (it != ast_.identifiers.end()) globals_[it->second.id] = value;
}

absl::Status Interpreter::Run(TextBuilder& out) {
  for (const auto& [name, identifier] : ast_.identifiers) {
    const Builtin* function = FindFunction(name);
    Value& global = globals_[identifier.id];
    if (function == nullptr || !global.is(Kind::kUndefined)) continue;
    SLUICE_ASSIGN_OR_RETURN(global, heap_.NewFunction({function, Value()}));
  }
  return Execute(ast_.body, &root_, out).status();
}

// ---- scopes

Scope* Interpreter::NewScope(Scope* parent) {
  if (free_scopes_.empty()) free_scopes_.push_back(&scopes_.emplace_back());
  Scope* scope = free_scopes_.back();
  free_scopes_.pop_back();
  scope->parent = parent;
  return scope;
}

void Interpreter::Release(Scope* scope) {
  if (scope->captured) return;
  scope->variables.clear();
  free_scopes_.push_back(scope);
}

const Value* Interpreter::Find(size_t id, const Scope* scope) const {
  for (; scope != &root_; scope = scope->parent) {
    for (const auto& [variable, value] : scope->variables) {
      if (variable == id) return &value;
    }
  }
  return globals_[id].is(Kind::kUndefined) ? nullptr : &globals_[id];
}

void Interpreter::Set(size_t id, const Value& value, Scope* scope) {
  if (scope == &root_) {
    globals_[id] = value;
    return;
  }
  for (auto& [variable, old] : scope->variables) {
    if (variable == id) {
      old = value;
      return;
    }
  }
  scope->variables.emplace_back(id, value);
}

// ---- statements

absl::StatusOr<Interpreter::Flow> Interpreter::Execute(const Body& body, Scope* scope, TextBuilder& out) {
  DepthGuard guard(context_.budget());
  SLUICE_RETURN_IF_ERROR(guard.status());
  for (const Statement& statement : body) {
    SLUICE_RETURN_IF_ERROR(At(statement.position, context_.budget().Spend(1)));
    SLUICE_ASSIGN_OR_RETURN(
        const Flow flow,
        std::visit([&](const auto& s) { return Do(s, statement.position, scope, out); }, statement.node));
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

absl::StatusOr<Interpreter::Flow> Interpreter::Do(const TextStatement& s, const Position& at, Scope*,
                                                  TextBuilder& out) {
  out.Append(s.text.AsText());
  SLUICE_RETURN_IF_ERROR(At(at, out.status()));
  return Flow::kNext;
}

absl::StatusOr<Interpreter::Flow> Interpreter::Do(const PrintStatement& s, const Position& at, Scope* scope,
                                                  TextBuilder& out) {
  for (const ExpressionPtr& e : s.values) {
    SLUICE_ASSIGN_OR_RETURN(const Value value, Evaluate(*e, scope));
    SLUICE_RETURN_IF_ERROR(At(at, AppendStr(value, heap_, out)));
  }
  return Flow::kNext;
}

absl::StatusOr<Interpreter::Flow> Interpreter::Do(const IfStatement& s, const Position&, Scope* scope,
                                                  TextBuilder& out) {
  for (const auto& [condition, body] : s.branches) {
    SLUICE_ASSIGN_OR_RETURN(const Value value, Evaluate(*condition, scope));
    if (IsTrue(value)) return Execute(body, scope, out);
  }
  return Execute(s.otherwise, scope, out);
}

// Finds out what the loop walks over. A list without condition is walked in place, so items appended on the way are
// seen.
absl::Status Interpreter::PrepareLoop(const ForStatement& s, const Value& iterable, const Position& at, Scope* scope,
                                      Loop* loop) {
  if (iterable.is(Kind::kList) && iterable.AsList().kind != ListKind::kIterator && !s.condition) {
    loop->items = &iterable.AsList().items;
    return absl::OkStatus();
  }
  loop->items = &loop->own_items;
  SLUICE_ASSIGN_OR_RETURN(loop->own_items, At(at, Iterate(iterable, heap_)));
  SLUICE_RETURN_IF_ERROR(At(at, context_.budget().Build(loop->own_items.size() * sizeof(Value))));
  if (!s.condition) return absl::OkStatus();
  LocalScope local(this, scope);
  std::vector<Value> kept;
  for (const Value& item : loop->own_items) {
    SLUICE_RETURN_IF_ERROR(Assign(s.target, item, at, local.get()));
    SLUICE_ASSIGN_OR_RETURN(const Value keep, Evaluate(*s.condition, local.get()));
    if (IsTrue(keep)) kept.push_back(item);
  }
  loop->own_items = std::move(kept);
  return absl::OkStatus();
}

absl::StatusOr<Interpreter::Flow> Interpreter::Do(const ForStatement& s, const Position& at, Scope* scope,
                                                  TextBuilder& out) {
  SLUICE_ASSIGN_OR_RETURN(const Value iterable, Evaluate(*s.iterable, scope));
  if (s.recursive) SLUICE_RETURN_IF_ERROR(Capture(scope, at));
  return RunLoop(s, iterable, 1, at, scope, out);
}

absl::StatusOr<Interpreter::Flow> Interpreter::RunLoop(const ForStatement& s, const Value& iterable, int depth,
                                                       const Position& at, Scope* scope, TextBuilder& out) {
  SLUICE_ASSIGN_OR_RETURN(Loop* const loop, heap_.NewLoop());
  loop->depth = depth;
  if (s.recursive) {
    loop->recursive = &s;
    loop->scope = scope;
  }
  SLUICE_RETURN_IF_ERROR(PrepareLoop(s, iterable, at, scope, loop));
  LocalScope local(this, scope);
  if (loop->items->empty()) {
    return Execute(s.otherwise, local.get(), out);
  }
  for (; loop->index < loop->items->size(); ++loop->index) {
    SLUICE_RETURN_IF_ERROR(At(at, context_.budget().Spend(1)));
    Set(ast_.loop.id, Value::Of(loop), local.get());
    SLUICE_RETURN_IF_ERROR(Assign(s.target, (*loop->items)[loop->index], at, local.get()));
    SLUICE_ASSIGN_OR_RETURN(const Flow flow, Execute(s.body, local.get(), out));
    if (flow == Flow::kBreak) break;
    local.Renew();
  }
  return Flow::kNext;
}

absl::Status Interpreter::Assign(const Target& target, const Value& value, const Position& at, Scope* scope) {
  if (!target.elements.empty()) {
    SLUICE_ASSIGN_OR_RETURN(const std::vector<Value> items, At(at, Iterate(value, heap_)));
    if (items.size() != target.elements.size()) {
      return At(at, absl::InvalidArgumentError(absl::StrCat("cannot unpack ", items.size(), " values into ",
                                                            target.elements.size(), " names")));
    }
    for (size_t i = 0; i < items.size(); ++i) SLUICE_RETURN_IF_ERROR(Assign(target.elements[i], items[i], at, scope));
    return absl::OkStatus();
  }
  if (target.attribute.is(Kind::kUndefined)) {
    Set(target.name.id, value, scope);
    return absl::OkStatus();
  }
  const Value* object = Find(target.name.id, scope);
  if (object == nullptr || !object->is(Kind::kNamespace)) {
    return At(at, absl::InvalidArgumentError(absl::StrCat("cannot set an attribute of '", target.name.text->bytes,
                                                          "', which is no namespace")));
  }
  return At(at, heap_.SetItem(object->AsDict(), target.attribute, value));
}

absl::StatusOr<Interpreter::Flow> Interpreter::Do(const SetStatement& s, const Position& at, Scope* scope,
                                                  TextBuilder&) {
  SLUICE_ASSIGN_OR_RETURN(const Value value, Evaluate(*s.value, scope));
  SLUICE_RETURN_IF_ERROR(Assign(s.target, value, at, scope));
  return Flow::kNext;
}

absl::StatusOr<Value> Interpreter::RenderFiltered(const Body& body, const std::vector<FilterCall>& filters,
                                                  Scope* scope) {
  LocalScope local(this, scope);
  TextBuilder inner(context_.budget());
  SLUICE_RETURN_IF_ERROR(Execute(body, local.get(), inner).status());
  SLUICE_ASSIGN_OR_RETURN(Value value, heap_.NewString(std::move(inner)));
  for (const FilterCall& filter : filters) {
    SLUICE_ASSIGN_OR_RETURN(value, ApplyFilter(filter, value, scope));
  }
  return value;
}

absl::StatusOr<Interpreter::Flow> Interpreter::Do(const SetBlockStatement& s, const Position& at, Scope* scope,
                                                  TextBuilder&) {
  SLUICE_ASSIGN_OR_RETURN(const Value value, RenderFiltered(s.body, s.filters, scope));
  SLUICE_RETURN_IF_ERROR(Assign(s.target, value, at, scope));
  return Flow::kNext;
}

absl::Status Interpreter::Capture(Scope* scope, const Position& at) {
  for (; scope != &root_ && !scope->captured; scope = scope->parent) {
    scope->captured = true;
    SLUICE_RETURN_IF_ERROR(At(at, context_.budget().Build(sizeof(Scope))));
  }
  return absl::OkStatus();
}

absl::StatusOr<Interpreter::Flow> Interpreter::Do(const MacroStatement& s, const Position& at, Scope* scope,
                                                  TextBuilder&) {
  SLUICE_RETURN_IF_ERROR(Capture(scope, at));
  SLUICE_ASSIGN_OR_RETURN(const Value macro, At(at, heap_.NewMacro({&s.macro, scope})));
  Set(s.macro.name.id, macro, scope);
  return Flow::kNext;
}

absl::StatusOr<Interpreter::Flow> Interpreter::Do(const CallStatement& s, const Position& at, Scope* scope,
                                                  TextBuilder& out) {
  SLUICE_RETURN_IF_ERROR(Capture(scope, at));
  SLUICE_ASSIGN_OR_RETURN(const Value caller, At(at, heap_.NewMacro({&s.caller, scope})));
  const Call& call = std::get<Call>(s.call->node);
  SLUICE_ASSIGN_OR_RETURN(const Value callee, Evaluate(*call.callee, scope));
  SLUICE_ASSIGN_OR_RETURN(CallArguments arguments, EvaluateArguments(call.arguments, at, scope));
  arguments.keyword.emplace_back("caller", caller);
  SLUICE_ASSIGN_OR_RETURN(const Value value, CallValue(callee, arguments, s.call->position));
  SLUICE_RETURN_IF_ERROR(At(at, AppendStr(value, heap_, out)));
  return Flow::kNext;
}

absl::StatusOr<Interpreter::Flow> Interpreter::Do(const WithStatement& s, const Position& at, Scope* scope,
                                                  TextBuilder& out) {
  LocalScope local(this, scope);
  for (const auto& [target, expression] : s.variables) {
    SLUICE_ASSIGN_OR_RETURN(const Value value, Evaluate(*expression, scope));
    SLUICE_RETURN_IF_ERROR(Assign(target, value, at, local.get()));
  }
  return Execute(s.body, local.get(), out);
}

// A block sees the outermost variables only, unless it is scoped.
absl::StatusOr<Interpreter::Flow> Interpreter::Do(const BlockStatement& s, const Position&, Scope* scope,
                                                  TextBuilder& out) {
  LocalScope local(this, s.scoped ? scope : &root_);
  return Execute(s.body, local.get(), out);
}

absl::StatusOr<Interpreter::Flow> Interpreter::Do(const FilterStatement& s, const Position& at, Scope* scope,
                                                  TextBuilder& out) {
  SLUICE_ASSIGN_OR_RETURN(const Value value, RenderFiltered(s.body, s.filters, scope));
  SLUICE_RETURN_IF_ERROR(At(at, AppendStr(value, heap_, out)));
  return Flow::kNext;
}

absl::StatusOr<Interpreter::Flow> Interpreter::Do(const ScopeStatement& s, const Position&, Scope* scope,
                                                  TextBuilder& out) {
  LocalScope local(this, scope);
  return Execute(s.body, local.get(), out);
}

absl::StatusOr<Interpreter::Flow> Interpreter::Do(const BreakStatement&, const Position&, Scope*, TextBuilder&) {
  return Flow::kBreak;
}

absl::StatusOr<Interpreter::Flow> Interpreter::Do(const ContinueStatement&, const Position&, Scope*, TextBuilder&) {
  return Flow::kContinue;
}

// ---- expressions

absl::StatusOr<Value> Interpreter::Evaluate(const Expression& e, Scope* scope) {
  DepthGuard guard(context_.budget());
  SLUICE_RETURN_IF_ERROR(guard.status());
  SLUICE_RETURN_IF_ERROR(At(e.position, context_.budget().Spend(1)));
  return std::visit([&](const auto& node) { return Get(node, e.position, scope); }, e.node);
}

absl::StatusOr<Value> Interpreter::Get(const Literal& e, const Position&, Scope*) { return e.value; }

absl::StatusOr<Value> Interpreter::Get(const Variable& e, const Position&, Scope* scope) {
  const Value* value = Find(e.name.id, scope);
  return value != nullptr ? *value : Value::Undefined(e.name.text);
}

absl::StatusOr<Value> Interpreter::Get(const Attribute& e, const Position& at, Scope* scope) {
  SLUICE_ASSIGN_OR_RETURN(const Value object, Evaluate(*e.object, scope));
  return At(at, GetAttribute(object, e.name, heap_));
}

absl::StatusOr<Value> Interpreter::Get(const Item& e, const Position& at, Scope* scope) {
  SLUICE_ASSIGN_OR_RETURN(const Value object, Evaluate(*e.object, scope));
  SLUICE_ASSIGN_OR_RETURN(const Value index, Evaluate(*e.index, scope));
  return At(at, GetItem(object, index, heap_));
}

absl::StatusOr<std::optional<int64_t>> Interpreter::SliceBound(const ExpressionPtr& e, const Position& at,
                                                               Scope* scope) {
  if (!e) return std::nullopt;
  SLUICE_ASSIGN_OR_RETURN(const Value bound, Evaluate(*e, scope));
  if (bound.is(Kind::kNone)) return std::nullopt;
  if (bound.is(Kind::kUndefined)) return At(at, UndefinedError(bound));
  if (!bound.IsInteger()) {
    return At(at, absl::InvalidArgumentError(absl::StrCat("a slice wants integers, found ", TypeName(bound))));
  }
  return bound.AsInt();
}

absl::StatusOr<Value> Interpreter::Get(const Slice& e, const Position& at, Scope* scope) {
  SLUICE_ASSIGN_OR_RETURN(const Value object, Evaluate(*e.object, scope));
  SLUICE_ASSIGN_OR_RETURN(const auto begin, SliceBound(e.begin, at, scope));
  SLUICE_ASSIGN_OR_RETURN(const auto end, SliceBound(e.end, at, scope));
  SLUICE_ASSIGN_OR_RETURN(const auto step, SliceBound(e.step, at, scope));
  return At(at, TakeSlice(object, begin, end, step, heap_));
}

absl::StatusOr<Value> Interpreter::Get(const ListDisplay& e, const Position& at, Scope* scope) {
  std::vector<Value> items;
  items.reserve(e.items.size());
  for (const ExpressionPtr& item : e.items) {
    SLUICE_ASSIGN_OR_RETURN(const Value value, Evaluate(*item, scope));
    items.push_back(value);
  }
  return At(at, heap_.NewList(std::move(items), e.kind));
}

absl::StatusOr<Value> Interpreter::Get(const DictDisplay& e, const Position& at, Scope* scope) {
  SLUICE_ASSIGN_OR_RETURN(const Value dict, At(at, heap_.NewDict()));
  for (const auto& [key_expression, value_expression] : e.items) {
    SLUICE_ASSIGN_OR_RETURN(const Value key, Evaluate(*key_expression, scope));
    SLUICE_ASSIGN_OR_RETURN(const Value value, Evaluate(*value_expression, scope));
    if (key.is(Kind::kList) || key.is(Kind::kDict)) {
      return At(at, absl::InvalidArgumentError(absl::StrCat("a ", TypeName(key), " cannot be a key")));
    }
    SLUICE_RETURN_IF_ERROR(At(at, heap_.SetItem(dict.AsDict(), key, value)));
  }
  return dict;
}

absl::StatusOr<Value> Interpreter::Get(const Unary& e, const Position& at, Scope* scope) {
  SLUICE_ASSIGN_OR_RETURN(const Value operand, Evaluate(*e.operand, scope));
  return At(at, ApplyUnary(e.op, operand, heap_));
}

absl::StatusOr<Value> Interpreter::Get(const Arithmetic& e, const Position&, Scope* scope) {
  SLUICE_ASSIGN_OR_RETURN(Value result, Evaluate(*e.first, scope));
  for (const Arithmetic::Link& link : e.rest) {
    SLUICE_RETURN_IF_ERROR(At(link.position, context_.budget().Spend(1)));
    SLUICE_ASSIGN_OR_RETURN(const Value operand, Evaluate(*link.operand, scope));
    SLUICE_ASSIGN_OR_RETURN(result, At(link.position, ApplyBinary(link.op, result, operand, heap_)));
  }
  return result;
}

absl::StatusOr<Value> Interpreter::Get(const Logic& e, const Position&, Scope* scope) {
  Value value;
  for (const ExpressionPtr& operand : e.operands) {
    SLUICE_ASSIGN_OR_RETURN(value, Evaluate(*operand, scope));
    if (IsTrue(value) != e.is_and) break;
  }
  return value;
}

absl::StatusOr<Value> Interpreter::Get(const Concatenation& e, const Position& at, Scope* scope) {
  TextBuilder out(context_.budget());
  for (const ExpressionPtr& part : e.parts) {
    SLUICE_ASSIGN_OR_RETURN(const Value value, Evaluate(*part, scope));
    SLUICE_RETURN_IF_ERROR(At(at, AppendStr(value, heap_, out)));
  }
  return At(at, heap_.NewString(std::move(out)));
}

absl::StatusOr<Value> Interpreter::Get(const Comparison& e, const Position& at, Scope* scope) {
  SLUICE_ASSIGN_OR_RETURN(Value left, Evaluate(*e.first, scope));
  for (const auto& [op, expression] : e.rest) {
    SLUICE_ASSIGN_OR_RETURN(const Value right, Evaluate(*expression, scope));
    SLUICE_ASSIGN_OR_RETURN(const Value result, At(at, Bool(Compare(op, left, right, heap_))));
    if (!result.AsBool()) return result;
    left = right;
  }
  return Value::Bool(true);
}

absl::StatusOr<Value> Interpreter::Get(const Conditional& e, const Position&, Scope* scope) {
  SLUICE_ASSIGN_OR_RETURN(const Value condition, Evaluate(*e.condition, scope));
  if (IsTrue(condition)) return Evaluate(*e.then, scope);
  return e.otherwise ? Evaluate(*e.otherwise, scope) : Value();
}

absl::StatusOr<CallArguments> Interpreter::EvaluateArguments(const Arguments& arguments, const Position& at,
                                                             Scope* scope) {
  CallArguments result;
  for (const ExpressionPtr& e : arguments.positional) {
    SLUICE_ASSIGN_OR_RETURN(const Value value, Evaluate(*e, scope));
    result.positional.push_back(value);
  }
  for (const auto& [name, e] : arguments.keyword) {
    SLUICE_ASSIGN_OR_RETURN(const Value value, Evaluate(*e, scope));
    if (result.Keyword(name) != nullptr) {
      return At(at, absl::InvalidArgumentError(absl::StrCat("the argument '", name, "' is given twice")));
    }
    result.keyword.emplace_back(name, value);
  }
  if (arguments.more_positional) {
    SLUICE_ASSIGN_OR_RETURN(const Value more, Evaluate(*arguments.more_positional, scope));
    SLUICE_ASSIGN_OR_RETURN(const std::vector<Value> items, At(at, Iterate(more, heap_)));
    result.positional.insert(result.positional.end(), items.begin(), items.end());
  }
  if (arguments.more_keyword) {
    SLUICE_ASSIGN_OR_RETURN(const Value more, Evaluate(*arguments.more_keyword, scope));
    if (!more.is(Kind::kDict)) return At(at, absl::InvalidArgumentError("'**' wants a dict"));
    SLUICE_RETURN_IF_ERROR(At(at, context_.budget().Spend(int64_t(more.AsDict().size()))));
    for (const Dict::Entry& entry : more.AsDict().entries()) {
      if (!entry.key.is(Kind::kString)) return At(at, absl::InvalidArgumentError("'**' wants names"));
      if (result.Keyword(entry.key.AsView()) != nullptr) {
        return At(at,
                  absl::InvalidArgumentError(absl::StrCat("the argument '", entry.key.AsView(), "' is given twice")));
      }
      result.keyword.emplace_back(entry.key.AsView(), entry.value);
    }
  }
  return result;
}

absl::StatusOr<Value> Interpreter::Get(const Call& e, const Position& at, Scope* scope) {
  SLUICE_ASSIGN_OR_RETURN(const Value callee, Evaluate(*e.callee, scope));
  SLUICE_ASSIGN_OR_RETURN(const CallArguments arguments, EvaluateArguments(e.arguments, at, scope));
  return CallValue(callee, arguments, at);
}

absl::StatusOr<Value> Interpreter::CallValue(const Value& callee, const CallArguments& arguments, const Position& at) {
  switch (callee.kind()) {
    case Kind::kMacro:
      return CallMacro(callee.AsMacro(), arguments, at);
    case Kind::kFunction: {
      const BoundFunction& function = callee.AsFunction();
      auto result = Invoke(*function.builtin, context_, function.self, arguments);
      return function.builtin->speaks_for_itself ? result : At(at, std::move(result));
    }
    case Kind::kLoop: {
      const Loop& loop = callee.AsLoop();
      if (loop.recursive == nullptr || arguments.positional.size() != 1) {
        return At(at, absl::InvalidArgumentError("loop() wants one list, in a loop that is marked as recursive"));
      }
      DepthGuard guard(context_.budget());
      SLUICE_RETURN_IF_ERROR(guard.status());
      TextBuilder out(context_.budget());
      SLUICE_RETURN_IF_ERROR(
          RunLoop(*loop.recursive, arguments.positional[0], loop.depth + 1, at, loop.scope, out).status());
      return At(at, heap_.NewString(std::move(out)));
    }
    case Kind::kUndefined:
      return At(at, UndefinedError(callee));
    default:
      return At(at, absl::InvalidArgumentError(absl::StrCat("a ", TypeName(callee), " cannot be called")));
  }
}

absl::Status Interpreter::SetExtraArguments(const MacroDefinition& macro, const CallArguments& arguments,
                                            const Position& at, Scope* scope) {
  const size_t num_parameters = macro.parameters.size();
  if (!macro.takes_more_positional && arguments.positional.size() > num_parameters) {
    return At(at, absl::InvalidArgumentError(absl::StrCat("macro '", macro.name.text->bytes, "' takes at most ",
                                                          num_parameters, " arguments, found ",
                                                          arguments.positional.size())));
  }
  Value caller = Value::Undefined(ast_.caller.text);
  SLUICE_ASSIGN_OR_RETURN(const Value more, At(at, heap_.NewDict()));
  for (const auto& [name, value] : arguments.keyword) {
    const auto parameter = std::find_if(macro.parameters.begin(), macro.parameters.end(),
                                        [&, n = name](const MacroParameter& p) { return p.name.text->bytes == n; });
    if (parameter != macro.parameters.end() &&
        static_cast<size_t>(parameter - macro.parameters.begin()) >= arguments.positional.size()) {
      continue;
    }
    if (macro.takes_caller && name == "caller" && parameter == macro.parameters.end()) {
      caller = value;
    } else if (macro.takes_more_keyword) {
      SLUICE_ASSIGN_OR_RETURN(const Value key, At(at, heap_.NewString(name, Origin::kTemplate)));
      SLUICE_RETURN_IF_ERROR(At(at, heap_.SetItem(more.AsDict(), key, value)));
    } else {
      return At(at, absl::InvalidArgumentError(
                        absl::StrCat("macro '", macro.name.text->bytes, "' has no argument named '", name, "'")));
    }
  }
  const bool names_caller = std::any_of(macro.parameters.begin(), macro.parameters.end(),
                                        [](const MacroParameter& p) { return p.name.text->bytes == "caller"; });
  if (macro.takes_caller && !names_caller) Set(ast_.caller.id, caller, scope);
  if (macro.takes_more_keyword) Set(ast_.kwargs.id, more, scope);
  if (macro.takes_more_positional) {
    const auto& all = arguments.positional;
    const auto begin = all.begin() + static_cast<ptrdiff_t>(std::min(num_parameters, all.size()));
    SLUICE_ASSIGN_OR_RETURN(const Value rest,
                            At(at, heap_.NewList(std::vector<Value>(begin, all.end()), ListKind::kTuple)));
    Set(ast_.varargs.id, rest, scope);
  }
  return absl::OkStatus();
}

absl::StatusOr<Value> Interpreter::CallMacro(const Macro& macro, const CallArguments& arguments, const Position& at) {
  const MacroDefinition& definition = *macro.definition;
  LocalScope local(this, macro.scope);
  SLUICE_RETURN_IF_ERROR(SetExtraArguments(definition, arguments, at, local.get()));
  for (size_t i = 0; i < definition.parameters.size(); ++i) {
    const MacroParameter& parameter = definition.parameters[i];
    Value value = Value::Undefined(parameter.name.text);
    if (i < arguments.positional.size()) {
      value = arguments.positional[i];
    } else if (const Value* keyword = arguments.Keyword(parameter.name.text->bytes)) {
      value = *keyword;
    } else if (parameter.default_value) {
      SLUICE_ASSIGN_OR_RETURN(value, Evaluate(*parameter.default_value, local.get()));
    }
    Set(parameter.name.id, value, local.get());
  }
  TextBuilder out(context_.budget());
  SLUICE_RETURN_IF_ERROR(Execute(definition.body, local.get(), out).status());
  return At(at, heap_.NewString(std::move(out)));
}

absl::StatusOr<Value> Interpreter::ApplyFilter(const FilterCall& filter, const Value& operand, Scope* scope) {
  SLUICE_ASSIGN_OR_RETURN(const CallArguments arguments, EvaluateArguments(filter.arguments, filter.position, scope));
  if (filter.builtin == nullptr) {
    return At(filter.position, absl::InvalidArgumentError(absl::StrCat("there is no filter '", filter.name, "'")));
  }
  return At(filter.position, Invoke(*filter.builtin, context_, operand, arguments));
}

absl::StatusOr<Value> Interpreter::Get(const Filtered& e, const Position&, Scope* scope) {
  SLUICE_ASSIGN_OR_RETURN(const Value operand, Evaluate(*e.operand, scope));
  return ApplyFilter(e.filter, operand, scope);
}

absl::StatusOr<Value> Interpreter::Get(const Test& e, const Position& at, Scope* scope) {
  SLUICE_ASSIGN_OR_RETURN(const Value operand, Evaluate(*e.operand, scope));
  SLUICE_ASSIGN_OR_RETURN(const CallArguments arguments, EvaluateArguments(e.arguments, at, scope));
  if (e.builtin == nullptr) return At(at, absl::InvalidArgumentError(absl::StrCat("there is no test '", e.name, "'")));
  return At(at, Invoke(*e.builtin, context_, operand, arguments));
}

}  // namespace sluice::jinja
