#include "engine/text/jinja/parser.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/text/jinja/expression_parser.h"
#include "engine/text/utf8.h"

namespace sluice::jinja {
namespace {

class Parser : private ExpressionParser {
 public:
  Parser(std::vector<Token> tokens, Ast* ast, int max_nesting)
      : ExpressionParser(std::move(tokens), ast, max_nesting) {}

  absl::Status Run() {
    SLUICE_ASSIGN_OR_RETURN(ast_.loop, MakeIdentifier("loop"));
    SLUICE_ASSIGN_OR_RETURN(ast_.caller, MakeIdentifier("caller"));
    SLUICE_ASSIGN_OR_RETURN(ast_.varargs, MakeIdentifier("varargs"));
    SLUICE_ASSIGN_OR_RETURN(ast_.kwargs, MakeIdentifier("kwargs"));
    SLUICE_ASSIGN_OR_RETURN(ast_.body, ParseBody({}));
    return absl::OkStatus();
  }

 private:
  // Up to a tag whose name is one of `ends`, which stays current; up to the end of the template if there are none.
  absl::StatusOr<Body> ParseBody(const std::vector<absl::string_view>& ends) {
    Nested nested(this);
    SLUICE_RETURN_IF_ERROR(nested.status());
    const Position begin = current().position;
    Body body;
    while (true) {
      const Token token = Take();
      if (token.kind == TokenKind::kText) {
        SLUICE_ASSIGN_OR_RETURN(const Value text, MakeString(token.text));
        body.push_back({token.position, TextStatement{text}});
      } else if (token.kind == TokenKind::kPrintBegin) {
        SLUICE_ASSIGN_OR_RETURN(ExpressionPtr value, ParseTuple(/*conditional=*/true, {}));
        if (current().kind != TokenKind::kPrintEnd) return Unexpected("'}}'");
        ++next_;
        PrintStatement print;
        print.values.push_back(std::move(value));
        body.push_back({token.position, std::move(print)});
      } else if (token.kind == TokenKind::kBlockBegin) {
        if (current().kind != TokenKind::kName) return Unexpected("the name of a statement");
        if (std::find(ends.begin(), ends.end(), current().text) != ends.end()) return body;
        SLUICE_ASSIGN_OR_RETURN(Statement::Node node, ParseStatement());
        SLUICE_RETURN_IF_ERROR(ExpectBlockEnd());
        body.push_back({token.position, std::move(node)});
      } else if (ends.empty()) {
        return body;
      } else {
        return SyntaxError(begin, absl::StrCat("this block has no '", ends.back(), "'"));
      }
    }
  }

  // The rest of an opening tag, and the body up to one of `ends`.
  absl::StatusOr<Body> ParseBlock(const std::vector<absl::string_view>& ends) {
    SkipOperator(":");
    SLUICE_RETURN_IF_ERROR(ExpectBlockEnd());
    return ParseBody(ends);
  }
  // The same, and takes the name of the only `end`.
  absl::StatusOr<Body> ParseBlockTo(absl::string_view end) {
    SLUICE_ASSIGN_OR_RETURN(Body body, ParseBlock({end}));
    ++next_;
    return body;
  }

  absl::StatusOr<Statement::Node> ParseStatement() {
    const Token tag = Take();
    if (tag.text == "if") return ParseIf();
    if (tag.text == "for") return ParseFor();
    if (tag.text == "set") return ParseSet();
    if (tag.text == "macro") return ParseMacro();
    if (tag.text == "call") return ParseCallBlock();
    if (tag.text == "with") return ParseWith();
    if (tag.text == "block") return ParseNamedBlock();
    if (tag.text == "print") return ParsePrint();
    if (tag.text == "filter") {
      SLUICE_ASSIGN_OR_RETURN(auto filters, ParseFilters());
      SLUICE_ASSIGN_OR_RETURN(Body body, ParseBlockTo("endfilter"));
      return FilterStatement{std::move(filters), std::move(body)};
    }
    if (tag.text == "generation") {
      SLUICE_ASSIGN_OR_RETURN(Body body, ParseBlockTo("endgeneration"));
      return ScopeStatement{std::move(body)};
    }
    if (tag.text == "break" || tag.text == "continue") {
      if (loops_ == 0) return SyntaxError(tag.position, absl::StrCat("'", tag.text, "' outside of a loop"));
      if (tag.text == "break") return BreakStatement{};
      return ContinueStatement{};
    }
    return SyntaxError(tag.position, absl::StrCat("the statement '", tag.text, "' is not supported"));
  }

  absl::StatusOr<Statement::Node> ParseIf() {
    IfStatement result;
    do {
      SLUICE_ASSIGN_OR_RETURN(ExpressionPtr condition, ParseTuple(/*conditional=*/false, {}));
      SLUICE_ASSIGN_OR_RETURN(Body body, ParseBlock({"elif", "else", "endif"}));
      result.branches.emplace_back(std::move(condition), std::move(body));
    } while (SkipName("elif"));
    if (SkipName("else")) {
      SLUICE_ASSIGN_OR_RETURN(result.otherwise, ParseBlockTo("endif"));
    } else {
      ++next_;
    }
    return result;
  }

  absl::StatusOr<Statement::Node> ParseFor() {
    ForStatement result;
    SLUICE_ASSIGN_OR_RETURN(result.target, ParseTarget(/*with_attribute=*/false));
    if (!SkipName("in")) return Unexpected("'in'");
    SLUICE_ASSIGN_OR_RETURN(result.iterable, ParseTuple(/*conditional=*/false, {"recursive"}));
    if (SkipName("if")) {
      SLUICE_ASSIGN_OR_RETURN(result.condition, ParseExpression());
    }
    result.recursive = SkipName("recursive");
    ++loops_;
    auto body = ParseBlock({"else", "endfor"});
    --loops_;
    SLUICE_ASSIGN_OR_RETURN(result.body, std::move(body));
    if (SkipName("else")) {
      SLUICE_ASSIGN_OR_RETURN(result.otherwise, ParseBlockTo("endfor"));
    } else {
      ++next_;
    }
    return result;
  }

  absl::StatusOr<Statement::Node> ParseSet() {
    SLUICE_ASSIGN_OR_RETURN(Target target, ParseTarget(/*with_attribute=*/true));
    if (SkipOperator("=")) {
      SLUICE_ASSIGN_OR_RETURN(ExpressionPtr value, ParseTuple(/*conditional=*/true, {}));
      return SetStatement{std::move(target), std::move(value)};
    }
    std::vector<FilterCall> filters;
    if (SkipOperator("|")) {
      SLUICE_ASSIGN_OR_RETURN(filters, ParseFilters());
    }
    SLUICE_ASSIGN_OR_RETURN(Body body, ParseBlockTo("endset"));
    return SetBlockStatement{std::move(target), std::move(filters), std::move(body)};
  }

  absl::StatusOr<Statement::Node> ParseMacro() {
    MacroDefinition macro;
    SLUICE_ASSIGN_OR_RETURN(const std::string name, ExpectName());
    SLUICE_ASSIGN_OR_RETURN(macro.name, MakeIdentifier(name));
    if (!current().IsOperator("(")) return Unexpected("'('");
    SLUICE_ASSIGN_OR_RETURN(macro.parameters, ParseParameters());
    SLUICE_RETURN_IF_ERROR(ParseMacroBody("endmacro", &macro));
    return MacroStatement{std::move(macro)};
  }

  absl::StatusOr<Statement::Node> ParseCallBlock() {
    CallStatement result;
    result.caller.name = ast_.caller;
    if (current().IsOperator("(")) {
      SLUICE_ASSIGN_OR_RETURN(result.caller.parameters, ParseParameters());
    }
    const Position position = current().position;
    SLUICE_ASSIGN_OR_RETURN(result.call, ParseExpression());
    if (!std::holds_alternative<Call>(result.call->node)) return SyntaxError(position, "expected a call");
    SLUICE_RETURN_IF_ERROR(ParseMacroBody("endcall", &result.caller));
    return result;
  }

  // (a, b=2), from the opening parenthesis on.
  absl::StatusOr<std::vector<MacroParameter>> ParseParameters() {
    SLUICE_RETURN_IF_ERROR(ExpectOperator("("));
    std::vector<MacroParameter> parameters;
    while (!current().IsOperator(")")) {
      if (!parameters.empty()) SLUICE_RETURN_IF_ERROR(ExpectOperator(","));
      const Position position = current().position;
      MacroParameter parameter;
      SLUICE_ASSIGN_OR_RETURN(const std::string name, ExpectName());
      SLUICE_ASSIGN_OR_RETURN(parameter.name, MakeIdentifier(name));
      if (SkipOperator("=")) {
        SLUICE_ASSIGN_OR_RETURN(parameter.default_value, ParseExpression());
      } else if (!parameters.empty() && parameters.back().default_value) {
        return SyntaxError(position, "a parameter without default follows one with a default");
      }
      parameters.push_back(std::move(parameter));
    }
    ++next_;
    return parameters;
  }

  // The body up to `end`, and which of the special names it uses.
  absl::Status ParseMacroBody(absl::string_view end, MacroDefinition* macro) {
    const int outer_loops = std::exchange(loops_, 0);
    const Uses outer_uses = std::exchange(uses_, {});
    auto body = ParseBlockTo(end);
    loops_ = outer_loops;
    macro->takes_caller = uses_.caller;
    for (const MacroParameter& parameter : macro->parameters) {
      if (uses_.caller && parameter.name.id == ast_.caller.id && !parameter.default_value) {
        return SyntaxError(current().position, "a parameter named 'caller' wants a default");
      }
    }
    macro->takes_more_positional = uses_.varargs;
    macro->takes_more_keyword = uses_.kwargs;
    uses_ = {outer_uses.caller || uses_.caller, outer_uses.varargs || uses_.varargs, outer_uses.kwargs || uses_.kwargs};
    SLUICE_ASSIGN_OR_RETURN(macro->body, std::move(body));
    return absl::OkStatus();
  }

  absl::StatusOr<Statement::Node> ParseWith() {
    WithStatement result;
    while (current().kind != TokenKind::kBlockEnd) {
      if (!result.variables.empty()) SLUICE_RETURN_IF_ERROR(ExpectOperator(","));
      SLUICE_ASSIGN_OR_RETURN(Target target, ParseTargetName(/*with_attribute=*/false));
      SLUICE_RETURN_IF_ERROR(ExpectOperator("="));
      SLUICE_ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
      result.variables.emplace_back(std::move(target), std::move(value));
    }
    SLUICE_ASSIGN_OR_RETURN(result.body, ParseBlockTo("endwith"));
    return result;
  }

  absl::StatusOr<Statement::Node> ParseNamedBlock() {
    const Position position = current().position;
    SLUICE_ASSIGN_OR_RETURN(const std::string name, ExpectName());
    if (!block_names_.insert(name).second) {
      return SyntaxError(position, absl::StrCat("there are two blocks '", name, "'"));
    }
    BlockStatement result;
    result.scoped = SkipName("scoped");
    SkipName("required");
    const int outer_loops = std::exchange(loops_, 0);
    auto body = ParseBlockTo("endblock");
    loops_ = outer_loops;
    SLUICE_ASSIGN_OR_RETURN(result.body, std::move(body));
    SkipName(name);  // {% endblock name %}
    return result;
  }

  absl::StatusOr<Statement::Node> ParsePrint() {
    PrintStatement result;
    do {
      SLUICE_ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
      result.values.push_back(std::move(value));
    } while (SkipOperator(","));
    return result;
  }

  absl::StatusOr<Target> ParseTarget(bool with_attribute) {
    Nested nested(this);
    SLUICE_RETURN_IF_ERROR(nested.status());
    std::vector<Target> elements;
    bool is_tuple = false;
    do {
      if (current().IsName("in") || current().IsOperator("=") || current().IsOperator(")")) break;
      if (SkipOperator("(")) {
        SLUICE_ASSIGN_OR_RETURN(Target inner, ParseTarget(with_attribute));
        SLUICE_RETURN_IF_ERROR(ExpectOperator(")"));
        elements.push_back(std::move(inner));
        continue;
      }
      SLUICE_ASSIGN_OR_RETURN(Target element, ParseTargetName(with_attribute));
      elements.push_back(std::move(element));
    } while (current().IsOperator(",") && (++next_, is_tuple = true));
    if (elements.empty()) return Unexpected("a name to assign to");
    if (!is_tuple) return std::move(elements[0]);
    Target target;
    target.elements = std::move(elements);
    return target;
  }

  absl::StatusOr<Target> ParseTargetName(bool with_attribute) {
    const Position position = current().position;
    SLUICE_ASSIGN_OR_RETURN(const std::string name, ExpectName());
    for (absl::string_view constant : {"true", "false", "none", "True", "False", "None"}) {
      if (name == constant) return SyntaxError(position, absl::StrCat("cannot assign to '", name, "'"));
    }
    Target target;
    SLUICE_ASSIGN_OR_RETURN(target.name, MakeIdentifier(name));
    if (with_attribute && SkipOperator(".")) {
      SLUICE_ASSIGN_OR_RETURN(const std::string attribute, ExpectName());
      SLUICE_ASSIGN_OR_RETURN(target.attribute, MakeString(attribute));
    }
    return target;
  }

  int loops_ = 0;  // around the current statement, within its macro
  std::set<std::string> block_names_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<const Ast>> Parse(absl::string_view source, const Limits& limits) {
  if (source.size() > limits.max_source_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the chat template has ", source.size(), " bytes, the limit is ", limits.max_source_bytes));
  }
  if (const size_t bad = FindInvalidUtf8(source); bad != absl::string_view::npos) {
    return absl::InvalidArgumentError(absl::StrCat("the chat template is not UTF-8 at byte ", bad));
  }
  SLUICE_ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(source));
  auto ast = std::make_unique<Ast>();
  ast->budget = std::make_unique<Budget>(limits);
  ast->heap = std::make_unique<Heap>(*ast->budget);
  SLUICE_RETURN_IF_ERROR(Parser(std::move(tokens), ast.get(), limits.max_nesting).Run());
  return ast;
}

}  // namespace sluice::jinja
