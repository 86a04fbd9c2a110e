#include "engine/text/jinja/parser.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/text/utf8.h"

namespace sluice::jinja {
namespace {

using ExpressionOr = absl::StatusOr<ExpressionPtr>;

std::string Describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kText:
      return "text";
    case TokenKind::kPrintBegin:
      return "'{{'";
    case TokenKind::kPrintEnd:
      return "'}}'";
    case TokenKind::kBlockBegin:
      return "'{%'";
    case TokenKind::kBlockEnd:
      return "'%}'";
    case TokenKind::kString:
      return "a string";
    case TokenKind::kEnd:
      return "the end of the template";
    default:
      return absl::StrCat("'", token.text, "'");
  }
}

class Parser {
 public:
  Parser(std::vector<Token> tokens, Ast* ast, int max_nesting)
      : tokens_(std::move(tokens)), ast_(*ast), max_nesting_(max_nesting) {}

  absl::Status Run() {
    SLUICE_ASSIGN_OR_RETURN(ast_.loop, MakeIdentifier("loop"));
    SLUICE_ASSIGN_OR_RETURN(ast_.body, ParseBody({}));
    return absl::OkStatus();
  }

 private:
  // ---- tokens

  const Token& current() const { return tokens_[next_]; }
  const Token& following() const { return tokens_[std::min(next_ + 1, tokens_.size() - 1)]; }
  Token Take() { return current().kind == TokenKind::kEnd ? current() : tokens_[next_++]; }
  bool SkipName(absl::string_view name) { return current().IsName(name) && (++next_, true); }
  bool SkipOperator(absl::string_view op) { return current().IsOperator(op) && (++next_, true); }

  absl::Status Unexpected(absl::string_view expected) const {
    return SyntaxError(current().position, absl::StrCat("expected ", expected, ", found ", Describe(current())));
  }
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
    explicit Nested(Parser* parser) : parser_(*parser) { ++parser_.nesting_; }
    ~Nested() { --parser_.nesting_; }
    absl::Status status() const {
      return parser_.nesting_ <= parser_.max_nesting_ ? absl::OkStatus() : parser_.TooDeep(parser_.current().position);
    }

   private:
    Parser& parser_;
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
    return depth;
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
    SLUICE_ASSIGN_OR_RETURN(const Identifier name, MakeIdentifier(token.text));
    return Make(token.position, Variable{name}, 0);
  }

  // ---- statements

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
        body.push_back({token.position, PrintStatement{std::move(value)}});
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
    if (current().IsName("recursive")) return SyntaxError(current().position, "recursive loops are not supported");
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
    MacroStatement macro;
    SLUICE_ASSIGN_OR_RETURN(const std::string name, ExpectName());
    SLUICE_ASSIGN_OR_RETURN(macro.name, MakeIdentifier(name));
    SLUICE_RETURN_IF_ERROR(ExpectOperator("("));
    while (!current().IsOperator(")")) {
      if (!macro.parameters.empty()) SLUICE_RETURN_IF_ERROR(ExpectOperator(","));
      const Position position = current().position;
      MacroParameter parameter;
      SLUICE_ASSIGN_OR_RETURN(const std::string parameter_name, ExpectName());
      SLUICE_ASSIGN_OR_RETURN(parameter.name, MakeIdentifier(parameter_name));
      if (SkipOperator("=")) {
        SLUICE_ASSIGN_OR_RETURN(parameter.default_value, ParseExpression());
      } else if (!macro.parameters.empty() && macro.parameters.back().default_value) {
        return SyntaxError(position, "a parameter without default follows one with a default");
      }
      macro.parameters.push_back(std::move(parameter));
    }
    ++next_;
    const int outer_loops = std::exchange(loops_, 0);
    auto body = ParseBlockTo("endmacro");
    loops_ = outer_loops;
    SLUICE_ASSIGN_OR_RETURN(macro.body, std::move(body));
    return macro;
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

  // ---- expressions, from the loosest binding to the tightest

  ExpressionOr ParseExpression() { return ParseConditional(); }

  // `a, b` makes a tuple; it ends at the end of the tag, at `)` and at the names in `ends`. Without `conditional`, `a
  // if b` is left for the caller.
  ExpressionOr ParseTuple(bool conditional, const std::vector<absl::string_view>& ends, bool in_parentheses = false) {
    const Position position = current().position;
    std::vector<ExpressionPtr> items;
    bool is_tuple = false;
    while (true) {
      const Token& t = current();
      if (t.kind == TokenKind::kPrintEnd || t.kind == TokenKind::kBlockEnd || t.IsOperator(")") ||
          (t.kind == TokenKind::kName && std::find(ends.begin(), ends.end(), t.text) != ends.end())) {
        break;
      }
      SLUICE_ASSIGN_OR_RETURN(ExpressionPtr item, conditional ? ParseConditional() : ParseOr());
      items.push_back(std::move(item));
      if (!SkipOperator(",")) break;
      is_tuple = true;
    }
    if (!is_tuple && items.size() == 1) return std::move(items[0]);
    if (!is_tuple && !in_parentheses) return Unexpected("an expression");
    const int depth = Depth(items);
    return Make(position, ListDisplay{ListKind::kTuple, std::move(items)}, depth);
  }

  ExpressionOr ParseConditional() {
    Nested nested(this);
    SLUICE_RETURN_IF_ERROR(nested.status());
    SLUICE_ASSIGN_OR_RETURN(ExpressionPtr value, ParseOr());
    while (current().IsName("if")) {
      const Position position = Take().position;
      Conditional node{nullptr, std::move(value), nullptr};
      SLUICE_ASSIGN_OR_RETURN(node.condition, ParseOr());
      if (SkipName("else")) {
        SLUICE_ASSIGN_OR_RETURN(node.otherwise, ParseConditional());
      }
      const int depth = std::max({Depth(node.condition), Depth(node.then), Depth(node.otherwise)});
      SLUICE_ASSIGN_OR_RETURN(value, Make(position, std::move(node), depth));
    }
    return value;
  }

  ExpressionOr ParseOr() {
    SLUICE_ASSIGN_OR_RETURN(ExpressionPtr left, ParseAnd());
    while (current().IsName("or")) {
      const Position position = Take().position;
      SLUICE_ASSIGN_OR_RETURN(ExpressionPtr right, ParseAnd());
      const int depth = std::max(Depth(left), Depth(right));
      SLUICE_ASSIGN_OR_RETURN(left, Make(position, Logic{false, std::move(left), std::move(right)}, depth));
    }
    return left;
  }

  ExpressionOr ParseAnd() {
    SLUICE_ASSIGN_OR_RETURN(ExpressionPtr left, ParseNot());
    while (current().IsName("and")) {
      const Position position = Take().position;
      SLUICE_ASSIGN_OR_RETURN(ExpressionPtr right, ParseNot());
      const int depth = std::max(Depth(left), Depth(right));
      SLUICE_ASSIGN_OR_RETURN(left, Make(position, Logic{true, std::move(left), std::move(right)}, depth));
    }
    return left;
  }

  ExpressionOr ParseNot() {
    if (!current().IsName("not")) return ParseComparison();
    Nested nested(this);
    SLUICE_RETURN_IF_ERROR(nested.status());
    const Position position = Take().position;
    SLUICE_ASSIGN_OR_RETURN(ExpressionPtr operand, ParseNot());
    const int depth = Depth(operand);
    return Make(position, Unary{UnaryOp::kNot, std::move(operand)}, depth);
  }

  bool TakeComparison(CompareOp* op) {
    static constexpr std::pair<absl::string_view, CompareOp> kOperators[] = {
        {"==", CompareOp::kEqual},     {"!=", CompareOp::kNotEqual}, {"<", CompareOp::kLess},
        {"<=", CompareOp::kLessEqual}, {">", CompareOp::kGreater},   {">=", CompareOp::kGreaterEqual}};
    for (const auto& [text, compare] : kOperators) {
      if (SkipOperator(text)) return *op = compare, true;
    }
    if (SkipName("in")) return *op = CompareOp::kIn, true;
    if (current().IsName("not") && following().IsName("in")) {
      next_ += 2;
      return *op = CompareOp::kNotIn, true;
    }
    return false;
  }

  ExpressionOr ParseComparison() {
    SLUICE_ASSIGN_OR_RETURN(ExpressionPtr first, ParseSum());
    const Position position = current().position;
    Comparison node;
    int depth = Depth(first);
    for (CompareOp op; TakeComparison(&op);) {
      SLUICE_ASSIGN_OR_RETURN(ExpressionPtr right, ParseSum());
      depth = std::max(depth, Depth(right));
      node.rest.emplace_back(op, std::move(right));
    }
    if (node.rest.empty()) return first;
    node.first = std::move(first);
    return Make(position, std::move(node), depth);
  }

  // Left-associative operators of one level.
  template <typename Next>
  ExpressionOr ParseBinary(std::initializer_list<std::pair<absl::string_view, BinaryOp>> operators, Next next) {
    SLUICE_ASSIGN_OR_RETURN(ExpressionPtr left, next());
    while (true) {
      const auto* found = std::find_if(operators.begin(), operators.end(),
                                       [&](const auto& op) { return current().IsOperator(op.first); });
      if (found == operators.end()) return left;
      const Position position = Take().position;
      SLUICE_ASSIGN_OR_RETURN(ExpressionPtr right, next());
      const int depth = std::max(Depth(left), Depth(right));
      SLUICE_ASSIGN_OR_RETURN(left, Make(position, Binary{found->second, std::move(left), std::move(right)}, depth));
    }
  }

  ExpressionOr ParseSum() {
    return ParseBinary({{"+", BinaryOp::kAdd}, {"-", BinaryOp::kSubtract}}, [this] { return ParseConcatenation(); });
  }

  ExpressionOr ParseConcatenation() {
    const Position position = current().position;
    std::vector<ExpressionPtr> parts;
    do {
      SLUICE_ASSIGN_OR_RETURN(ExpressionPtr part, ParseProduct());
      parts.push_back(std::move(part));
    } while (SkipOperator("~"));
    if (parts.size() == 1) return std::move(parts[0]);
    const int depth = Depth(parts);
    return Make(position, Concatenation{std::move(parts)}, depth);
  }

  ExpressionOr ParseProduct() {
    return ParseBinary({{"*", BinaryOp::kMultiply},
                        {"/", BinaryOp::kDivide},
                        {"//", BinaryOp::kFloorDivide},
                        {"%", BinaryOp::kModulo}},
                       [this] { return ParsePower(); });
  }

  ExpressionOr ParsePower() {
    return ParseBinary({{"**", BinaryOp::kPower}}, [this] { return ParseUnary(/*with_filters=*/true); });
  }

  ExpressionOr ParseUnary(bool with_filters) {
    ExpressionPtr node;
    if (current().IsOperator("-") || current().IsOperator("+")) {
      Nested nested(this);
      SLUICE_RETURN_IF_ERROR(nested.status());
      const Token sign = Take();
      SLUICE_ASSIGN_OR_RETURN(ExpressionPtr operand, ParseUnary(/*with_filters=*/false));
      const int depth = Depth(operand);
      const UnaryOp op = sign.text == "-" ? UnaryOp::kMinus : UnaryOp::kPlus;
      SLUICE_ASSIGN_OR_RETURN(node, Make(sign.position, Unary{op, std::move(operand)}, depth));
    } else {
      SLUICE_ASSIGN_OR_RETURN(node, ParsePrimary());
    }
    SLUICE_ASSIGN_OR_RETURN(node, ParsePostfix(std::move(node)));
    return with_filters ? ParseFiltersAndTests(std::move(node)) : std::move(node);
  }

  ExpressionOr ParsePrimary() {
    const Token token = current();
    switch (token.kind) {
      case TokenKind::kName:
        ++next_;
        return ParseName(token);
      case TokenKind::kString: {
        std::string text;
        while (current().kind == TokenKind::kString) text += Take().text;
        SLUICE_ASSIGN_OR_RETURN(const Value value, MakeString(text));
        return Make(token.position, Literal{value}, 0);
      }
      case TokenKind::kInteger:
      case TokenKind::kFloat:
        ++next_;
        return ParseNumber(token);
      case TokenKind::kOperator:
        if (SkipOperator("(")) {
          SLUICE_ASSIGN_OR_RETURN(ExpressionPtr inner, ParseTuple(/*conditional=*/true, {}, /*in_parentheses=*/true));
          SLUICE_RETURN_IF_ERROR(ExpectOperator(")"));
          return inner;
        }
        if (SkipOperator("[")) return ParseList(token.position);
        if (SkipOperator("{")) return ParseDict(token.position);
        [[fallthrough]];
      default:
        return Unexpected("an expression");
    }
  }

  ExpressionOr ParseName(const Token& token) {
    if (token.text == "true" || token.text == "True") return Make(token.position, Literal{Value::Bool(true)}, 0);
    if (token.text == "false" || token.text == "False") return Make(token.position, Literal{Value::Bool(false)}, 0);
    if (token.text == "none" || token.text == "None") return Make(token.position, Literal{Value::None()}, 0);
    return MakeVariable(token);
  }

  ExpressionOr ParseNumber(const Token& token) {
    if (token.kind == TokenKind::kFloat) {
      double d = 0;
      if (!absl::SimpleAtod(token.text, &d)) return SyntaxError(token.position, "not a number");
      return Make(token.position, Literal{Value::Float(d)}, 0);
    }
    const char prefix = token.text.size() > 2 && token.text[0] == '0' ? static_cast<char>(token.text[1] | 32) : '\0';
    const int base = prefix == 'x' ? 16 : prefix == 'o' ? 8 : prefix == 'b' ? 2 : 10;
    const std::string digits = base == 10 ? token.text : token.text.substr(2);
    char* end = nullptr;
    errno = 0;
    const long long value = std::strtoll(digits.c_str(), &end, base);
    if (errno != 0 || *end != '\0') {
      return SyntaxError(token.position, absl::StrCat("'", token.text, "' is no integer of 64 bits"));
    }
    return Make(token.position, Literal{Value::Int(value)}, 0);
  }

  ExpressionOr ParseList(const Position& position) {
    std::vector<ExpressionPtr> items;
    while (!SkipOperator("]")) {
      if (!items.empty()) {
        SLUICE_RETURN_IF_ERROR(ExpectOperator(","));
        if (SkipOperator("]")) break;
      }
      SLUICE_ASSIGN_OR_RETURN(ExpressionPtr item, ParseExpression());
      items.push_back(std::move(item));
    }
    const int depth = Depth(items);
    return Make(position, ListDisplay{ListKind::kList, std::move(items)}, depth);
  }

  ExpressionOr ParseDict(const Position& position) {
    DictDisplay node;
    int depth = 0;
    while (!SkipOperator("}")) {
      if (!node.items.empty()) {
        SLUICE_RETURN_IF_ERROR(ExpectOperator(","));
        if (SkipOperator("}")) break;
      }
      SLUICE_ASSIGN_OR_RETURN(ExpressionPtr key, ParseExpression());
      SLUICE_RETURN_IF_ERROR(ExpectOperator(":"));
      SLUICE_ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
      depth = std::max({depth, Depth(key), Depth(value)});
      node.items.emplace_back(std::move(key), std::move(value));
    }
    return Make(position, std::move(node), depth);
  }

  ExpressionOr ParsePostfix(ExpressionPtr node) {
    while (true) {
      if (current().IsOperator(".")) {
        SLUICE_ASSIGN_OR_RETURN(node, ParseAttribute(std::move(node)));
      } else if (current().IsOperator("[")) {
        SLUICE_ASSIGN_OR_RETURN(node, ParseSubscript(std::move(node)));
      } else if (current().IsOperator("(")) {
        SLUICE_ASSIGN_OR_RETURN(node, ParseCall(std::move(node)));
      } else {
        return node;
      }
    }
  }

  ExpressionOr ParseAttribute(ExpressionPtr object) {
    const Position position = Take().position;
    const Token name = Take();
    const int depth = Depth(object);
    if (name.kind == TokenKind::kInteger) {
      SLUICE_ASSIGN_OR_RETURN(ExpressionPtr index, ParseNumber(name));
      return Make(position, Item{std::move(object), std::move(index)}, depth);
    }
    if (name.kind != TokenKind::kName) return SyntaxError(name.position, "expected a name or a number after '.'");
    SLUICE_ASSIGN_OR_RETURN(const Value text, MakeString(name.text));
    return Make(position, Attribute{std::move(object), text}, depth);
  }

  ExpressionOr ParseSubscript(ExpressionPtr object) {
    const Position position = Take().position;
    ExpressionPtr parts[3];
    int colons = 0;
    while (!current().IsOperator("]")) {
      if (SkipOperator(":")) {
        if (++colons > 2) return SyntaxError(position, "a slice has at most three parts");
        continue;
      }
      if (parts[colons]) return Unexpected("']'");
      SLUICE_ASSIGN_OR_RETURN(parts[colons], ParseExpression());
    }
    ++next_;
    const int depth = std::max({Depth(object), Depth(parts[0]), Depth(parts[1]), Depth(parts[2])});
    if (colons > 0) {
      return Make(position, Slice{std::move(object), std::move(parts[0]), std::move(parts[1]), std::move(parts[2])},
                  depth);
    }
    if (!parts[0]) return SyntaxError(position, "expected an index between '[' and ']'");
    return Make(position, Item{std::move(object), std::move(parts[0])}, depth);
  }

  ExpressionOr ParseCall(ExpressionPtr callee) {
    const Position position = current().position;
    Call node{std::move(callee), {}};
    SLUICE_ASSIGN_OR_RETURN(node.arguments, ParseArguments());
    const int depth = std::max(Depth(node.callee), Depth(node.arguments));
    return Make(position, std::move(node), depth);
  }

  absl::StatusOr<Arguments> ParseArguments() {
    SLUICE_RETURN_IF_ERROR(ExpectOperator("("));
    Arguments arguments;
    while (!SkipOperator(")")) {
      if (!arguments.positional.empty() || !arguments.keyword.empty()) {
        SLUICE_RETURN_IF_ERROR(ExpectOperator(","));
        if (SkipOperator(")")) break;
      }
      if (current().kind == TokenKind::kName && following().IsOperator("=")) {
        std::string name = Take().text;
        ++next_;
        SLUICE_ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
        arguments.keyword.emplace_back(std::move(name), std::move(value));
      } else if (!arguments.keyword.empty()) {
        return SyntaxError(current().position, "a positional argument follows one with a keyword");
      } else {
        SLUICE_ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
        arguments.positional.push_back(std::move(value));
      }
    }
    return arguments;
  }

  ExpressionOr ParseFiltersAndTests(ExpressionPtr node) {
    while (true) {
      if (current().IsOperator("|")) {
        const Position position = Take().position;
        SLUICE_ASSIGN_OR_RETURN(FilterCall filter, ParseFilter());
        const int depth = std::max(Depth(node), Depth(filter.arguments));
        SLUICE_ASSIGN_OR_RETURN(node, Make(position, Filtered{std::move(node), std::move(filter)}, depth));
      } else if (current().IsName("is")) {
        SLUICE_ASSIGN_OR_RETURN(node, ParseTest(std::move(node)));
      } else if (current().IsOperator("(")) {
        SLUICE_ASSIGN_OR_RETURN(node, ParseCall(std::move(node)));
      } else {
        return node;
      }
    }
  }

  absl::StatusOr<FilterCall> ParseFilter() {
    FilterCall filter;
    filter.position = current().position;
    SLUICE_ASSIGN_OR_RETURN(filter.name, ExpectName());
    if (current().IsOperator("(")) {
      SLUICE_ASSIGN_OR_RETURN(filter.arguments, ParseArguments());
    }
    return filter;
  }

  absl::StatusOr<std::vector<FilterCall>> ParseFilters() {
    std::vector<FilterCall> filters;
    do {
      SLUICE_ASSIGN_OR_RETURN(FilterCall filter, ParseFilter());
      filters.push_back(std::move(filter));
    } while (SkipOperator("|"));
    return filters;
  }

  // `is [not] name`, with arguments in parentheses or one argument without: x is divisibleby 3.
  ExpressionOr ParseTest(ExpressionPtr operand) {
    const Position position = Take().position;
    const bool negated = SkipName("not");
    Test node{std::move(operand), "", {}};
    SLUICE_ASSIGN_OR_RETURN(node.name, ExpectName());
    const Token& next = current();
    if (next.IsOperator("(")) {
      SLUICE_ASSIGN_OR_RETURN(node.arguments, ParseArguments());
    } else if (next.kind == TokenKind::kString || next.kind == TokenKind::kInteger || next.kind == TokenKind::kFloat ||
               next.IsOperator("[") || next.IsOperator("{") ||
               (next.kind == TokenKind::kName && next.text != "else" && next.text != "or" && next.text != "and")) {
      if (next.IsName("is")) return SyntaxError(next.position, "tests cannot be chained with 'is'");
      SLUICE_ASSIGN_OR_RETURN(ExpressionPtr argument, ParsePrimary());
      SLUICE_ASSIGN_OR_RETURN(argument, ParsePostfix(std::move(argument)));
      node.arguments.positional.push_back(std::move(argument));
    }
    const int depth = std::max(Depth(node.operand), Depth(node.arguments));
    SLUICE_ASSIGN_OR_RETURN(ExpressionPtr test, Make(position, std::move(node), depth));
    if (!negated) return test;
    return Make(position, Unary{UnaryOp::kNot, std::move(test)}, depth + 1);
  }

  const std::vector<Token> tokens_;
  size_t next_ = 0;
  Ast& ast_;
  const int max_nesting_;
  int nesting_ = 0;
  int loops_ = 0;  // around the current statement, within its macro
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
