// The part of the parser that reads expressions; parser.cc adds the statements. Methods are in the order of Jinja's
// precedence, from what binds loosest to what binds tightest.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "engine/base/status_macros.h"
#include "engine/text/jinja/ast.h"
#include "engine/text/jinja/lexer.h"

namespace sluice::jinja {

class ExpressionParser {
 protected:
  using ExpressionOr = absl::StatusOr<ExpressionPtr>;

  ExpressionParser(std::vector<Token> tokens, Ast* ast, int max_nesting)
      : ast_(*ast), tokens_(std::move(tokens)), max_nesting_(max_nesting) {}

  // ---- tokens

  const Token& current() const { return tokens_[next_]; }
  const Token& following() const { return tokens_[std::min(next_ + 1, tokens_.size() - 1)]; }
  Token Take() { return current().kind == TokenKind::kEnd ? current() : tokens_[next_++]; }
  bool SkipName(absl::string_view name) { return current().IsName(name) && (++next_, true); }
  bool SkipOperator(absl::string_view op) { return current().IsOperator(op) && (++next_, true); }

  absl::Status Unexpected(absl::string_view expected) const;
  absl::Status ExpectOperator(absl::string_view op) {
    return SkipOperator(op) ? absl::OkStatus() : Unexpected(absl::StrCat("'", op, "'"));
  }
  absl::Status ExpectBlockEnd() {
    if (current().kind != TokenKind::kBlockEnd) return Unexpected("'%}'");
    ++next_;
    return absl::OkStatus();
  }
  absl::StatusOr<std::string> ExpectName() {
    if (current().kind != TokenKind::kName) return Unexpected("a name");
    return Take().text;
  }

  // One level of the parser's own recursion.
  class Nested {
   public:
    explicit Nested(ExpressionParser* parser) : parser_(*parser) { ++parser_.nesting_; }
    ~Nested() { --parser_.nesting_; }
    absl::Status status() const {
      return parser_.nesting_ <= parser_.max_nesting_ ? absl::OkStatus() : parser_.TooDeep(parser_.current().position);
    }

   private:
    ExpressionParser& parser_;
  };

  absl::Status TooDeep(const Position& position) const {
    return SyntaxError(position, absl::StrCat("nested deeper than ", max_nesting_, " levels"));
  }

  // ---- nodes

  static int Depth(const ExpressionPtr& e) { return e ? e->depth : 0; }
  static int Depth(const std::vector<ExpressionPtr>& list) {
    int depth = 0;
    for (const ExpressionPtr& e : list) depth = std::max(depth, Depth(e));
    return depth;
  }
  static int Depth(const Arguments& arguments) {
    int depth = Depth(arguments.positional);
    for (const auto& [name, e] : arguments.keyword) depth = std::max(depth, Depth(e));
    return std::max({depth, Depth(arguments.more_positional), Depth(arguments.more_keyword)});
  }

  ExpressionOr Make(const Position& position, Expression::Node node, int child_depth) const {
    if (child_depth >= max_nesting_) return TooDeep(position);
    return std::make_unique<Expression>(Expression{position, child_depth + 1, std::move(node)});
  }

  absl::StatusOr<Value> MakeString(absl::string_view text) { return ast_.heap->NewString(text, Origin::kTemplate); }

  absl::StatusOr<Identifier> MakeIdentifier(absl::string_view name) {
    if (auto it = ast_.identifiers.find(name); it != ast_.identifiers.end()) return it->second;
    SLUICE_ASSIGN_OR_RETURN(const Value text, MakeString(name));
    const Identifier identifier{ast_.identifiers.size(), &text.AsText()};
    ast_.identifiers.emplace(text.AsView(), identifier);
    return identifier;
  }

  ExpressionOr MakeVariable(const Token& token) {
    if (token.text == "caller") uses_.caller = true;
    if (token.text == "varargs") uses_.varargs = true;
    if (token.text == "kwargs") uses_.kwargs = true;
    SLUICE_ASSIGN_OR_RETURN(const Identifier name, MakeIdentifier(token.text));
    return Make(token.position, Variable{name}, 0);
  }

  // ---- expressions

  ExpressionOr ParseExpression();
  // `a, b` makes a tuple; it ends at the end of the tag, at `)` and at the names in `ends`. Without `conditional`, `a
  // if b` is left for the caller.
  ExpressionOr ParseTuple(bool conditional, const std::vector<absl::string_view>& ends, bool in_parentheses = false);
  absl::StatusOr<std::vector<FilterCall>> ParseFilters();
  // Notes for whoever loads the template what will fail once it is reached.
  void Warn(const Position& position, absl::string_view what) {
    ast_.warnings.push_back(absl::StrCat("line ", position.line, ", column ", position.column, ": ", what));
  }

  // The special names that were read since the current macro began.
  struct Uses {
    bool caller = false, varargs = false, kwargs = false;
  };

  Ast& ast_;
  size_t next_ = 0;  // the current token
  Uses uses_;

 private:
  ExpressionOr ParseConditional();
  ExpressionOr ParseOr();
  ExpressionOr ParseAnd();
  template <typename Next>
  ExpressionOr ParseLogic(absl::string_view name, Next next);
  ExpressionOr ParseNot();
  bool TakeComparison(CompareOp* op);
  ExpressionOr ParseComparison();
  // Left-associative operators of one level.
  template <typename Next>
  ExpressionOr ParseArithmetic(std::initializer_list<std::pair<absl::string_view, BinaryOp>> operators, Next next);
  ExpressionOr ParseSum();
  ExpressionOr ParseConcatenation();
  ExpressionOr ParseProduct();
  ExpressionOr ParsePower();
  ExpressionOr ParseUnary(bool with_filters);
  ExpressionOr ParsePrimary();
  ExpressionOr ParseName(const Token& token);
  ExpressionOr ParseNumber(const Token& token);
  ExpressionOr ParseList(const Position& position);
  ExpressionOr ParseDict(const Position& position);
  ExpressionOr ParsePostfix(ExpressionPtr node);
  ExpressionOr ParseAttribute(ExpressionPtr object);
  ExpressionOr ParseSubscript(ExpressionPtr object);
  ExpressionOr ParseCall(ExpressionPtr callee);
  absl::StatusOr<Arguments> ParseArguments();
  ExpressionOr ParseFiltersAndTests(ExpressionPtr node);
  absl::StatusOr<FilterCall> ParseFilter();
  // `is [not] name`, with arguments in parentheses or one argument without: x is divisibleby 3.
  ExpressionOr ParseTest(ExpressionPtr operand);
  absl::StatusOr<std::string> ParseDottedName();

  const std::vector<Token> tokens_;
  const int max_nesting_;
  int nesting_ = 0;
};

}  // namespace sluice::jinja
