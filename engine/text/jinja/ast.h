// The syntax tree of a template. Plain data; the parser bounds its depth (Limits::max_nesting).
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "engine/text/jinja/lexer.h"
#include "engine/text/jinja/value.h"

namespace sluice::jinja {

struct Builtin;  // builtins.h
struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

// An identifier: its number among the template's identifiers (so that scopes need no strings), and its text.
struct Identifier {
  size_t id = 0;
  const Text* text = nullptr;
};

// Arguments as written: f(1, x, indent=2, *more, **options).
struct Arguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> keyword;
  ExpressionPtr more_positional, more_keyword;  // each may be null
};

struct Literal {
  Value value;
};
struct Variable {
  Identifier name;
};
struct Attribute {  // object.name
  ExpressionPtr object;
  Value name;
};
struct Item {  // object[index]
  ExpressionPtr object;
  ExpressionPtr index;
};
struct Slice {  // object[begin:end:step], each may be null
  ExpressionPtr object;
  ExpressionPtr begin, end, step;
};
struct ListDisplay {
  ListKind kind = ListKind::kList;  // or kTuple
  std::vector<ExpressionPtr> items;
};
struct DictDisplay {
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> items;
};
enum class UnaryOp { kNot, kMinus, kPlus };
struct Unary {
  UnaryOp op;
  ExpressionPtr operand;
};
enum class BinaryOp { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };
struct Arithmetic {  // a + b - c, of operators of one precedence, from the left; a long sum is not a deep tree
  struct Link {
    BinaryOp op;
    Position position;
    ExpressionPtr operand;
  };
  ExpressionPtr first;
  std::vector<Link> rest;
};
struct Logic {  // a and b and c, or with `or`: gives the operand that decides
  bool is_and;
  std::vector<ExpressionPtr> operands;
};
struct Concatenation {  // a ~ b ~ c
  std::vector<ExpressionPtr> parts;
};
enum class CompareOp { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kIn, kNotIn };
struct Comparison {  // a < b < c
  ExpressionPtr first;
  std::vector<std::pair<CompareOp, ExpressionPtr>> rest;
};
struct Conditional {  // then if condition else otherwise (may be null)
  ExpressionPtr condition, then, otherwise;
};
struct Call {
  ExpressionPtr callee;
  Arguments arguments;
};
struct FilterCall {  // name(arguments), to be applied to something
  Position position;
  std::string name;
  const Builtin* builtin = nullptr;  // null: there is none of that name
  Arguments arguments;
};
struct Filtered {  // operand | filter
  ExpressionPtr operand;
  FilterCall filter;
};
struct Test {  // operand is name(arguments)
  ExpressionPtr operand;
  std::string name;
  const Builtin* builtin = nullptr;  // null: there is none of that name
  Arguments arguments;
};

struct Expression {
  using Node = std::variant<Literal, Variable, Attribute, Item, Slice, ListDisplay, DictDisplay, Unary, Arithmetic,
                            Logic, Concatenation, Comparison, Conditional, Call, Filtered, Test>;
  Position position;
  int depth = 1;  // of the tree below
  Node node;
};

struct Statement;
using Body = std::vector<Statement>;

// What a for or set assigns to: a name, an attribute of a namespace, or a tuple of targets.
struct Target {
  Identifier name;
  Value attribute;  // of the namespace `name`; undefined for a plain name
  std::vector<Target> elements;
};

struct TextStatement {
  Value text;
};
struct PrintStatement {  // {{ x }}, and {% print x, y %}
  std::vector<ExpressionPtr> values;
};
struct IfStatement {
  std::vector<std::pair<ExpressionPtr, Body>> branches;  // if, elif, ...
  Body otherwise;
};
struct ForStatement {
  Target target;
  ExpressionPtr iterable;
  ExpressionPtr condition;  // for x in y if condition; may be null
  Body body;
  Body otherwise;  // when there was nothing to walk over
  bool recursive = false;
};
struct SetStatement {
  Target target;
  ExpressionPtr value;
};
struct SetBlockStatement {
  Target target;
  std::vector<FilterCall> filters;
  Body body;
};
struct MacroParameter {
  Identifier name;
  ExpressionPtr default_value;  // may be null
};
struct MacroDefinition {
  Identifier name;
  std::vector<MacroParameter> parameters;
  Body body;
  // Names that the body uses: only then it takes a caller, and arguments beyond the parameters.
  bool takes_caller = false;
  bool takes_more_positional = false;  // varargs
  bool takes_more_keyword = false;     // kwargs
};
struct MacroStatement {
  MacroDefinition macro;
};
struct CallStatement {  // {% call(x) f() %}: f gets the body as the macro `caller`
  MacroDefinition caller;
  ExpressionPtr call;  // a Call
};
struct WithStatement {  // {% with a = 1, b = 2 %}
  std::vector<std::pair<Target, ExpressionPtr>> variables;
  Body body;
};
struct BlockStatement {  // {% block name %}, rendered where it stands: nothing extends a chat template
  bool scoped = false;
  Body body;
};
struct FilterStatement {
  std::vector<FilterCall> filters;
  Body body;
};
struct ScopeStatement {  // {% generation %}: its body, in a scope of its own
  Body body;
};
struct BreakStatement {};
struct ContinueStatement {};

struct Statement {
  using Node = std::variant<TextStatement, PrintStatement, IfStatement, ForStatement, SetStatement, SetBlockStatement,
                            MacroStatement, CallStatement, WithStatement, BlockStatement, FilterStatement,
                            ScopeStatement, BreakStatement, ContinueStatement>;
  Position position;
  Node node;
};

// A parsed template. Immutable; any number of renders may use it at once.
struct Ast {
  std::unique_ptr<Budget> budget;                                  // what the parser spent
  std::unique_ptr<Heap> heap;                                      // literals and identifiers
  absl::flat_hash_map<absl::string_view, Identifier> identifiers;  // numbered from 0
  Identifier loop, caller, varargs, kwargs;                        // these names
  std::vector<std::string> warnings;                               // "line L, column C: there is no filter 'x'"
  Body body;
};

}  // namespace sluice::jinja
