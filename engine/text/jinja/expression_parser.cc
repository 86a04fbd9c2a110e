#include "engine/text/jinja/expression_parser.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/text/jinja/big_int.h"
#include "engine/text/jinja/builtins.h"

namespace sluice::jinja {
namespace {

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

}  // namespace

absl::Status ExpressionParser::Unexpected(absl::string_view expected) const {
  return SyntaxError(current().position, absl::StrCat("expected ", expected, ", found ", Describe(current())));
}

ExpressionParser::ExpressionOr ExpressionParser::ParseExpression() { return ParseConditional(); }

ExpressionParser::ExpressionOr ExpressionParser::ParseTuple(bool conditional,
                                                            const std::vector<absl::string_view>& ends,
                                                            bool in_parentheses) {
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

ExpressionParser::ExpressionOr ExpressionParser::ParseConditional() {
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

template <typename Next>
ExpressionParser::ExpressionOr ExpressionParser::ParseLogic(absl::string_view name, Next next) {
  const Position position = current().position;
  std::vector<ExpressionPtr> operands;
  do {
    SLUICE_ASSIGN_OR_RETURN(ExpressionPtr operand, next());
    operands.push_back(std::move(operand));
  } while (SkipName(name));
  if (operands.size() == 1) return std::move(operands[0]);
  const int depth = Depth(operands);
  return Make(position, Logic{name == "and", std::move(operands)}, depth);
}

ExpressionParser::ExpressionOr ExpressionParser::ParseOr() {
  return ParseLogic("or", [this] { return ParseAnd(); });
}

ExpressionParser::ExpressionOr ExpressionParser::ParseAnd() {
  return ParseLogic("and", [this] { return ParseNot(); });
}

ExpressionParser::ExpressionOr ExpressionParser::ParseNot() {
  if (!current().IsName("not")) return ParseComparison();
  Nested nested(this);
  SLUICE_RETURN_IF_ERROR(nested.status());
  const Position position = Take().position;
  SLUICE_ASSIGN_OR_RETURN(ExpressionPtr operand, ParseNot());
  const int depth = Depth(operand);
  return Make(position, Unary{UnaryOp::kNot, std::move(operand)}, depth);
}

bool ExpressionParser::TakeComparison(CompareOp* op) {
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

ExpressionParser::ExpressionOr ExpressionParser::ParseComparison() {
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

template <typename Next>
ExpressionParser::ExpressionOr ExpressionParser::ParseArithmetic(
    std::initializer_list<std::pair<absl::string_view, BinaryOp>> operators, Next next) {
  SLUICE_ASSIGN_OR_RETURN(ExpressionPtr first, next());
  const Position position = current().position;
  int depth = Depth(first);
  Arithmetic node;
  while (true) {
    const auto* found = std::find_if(operators.begin(), operators.end(),
                                     [&](const auto& op) { return current().IsOperator(op.first); });
    if (found == operators.end()) break;
    const Position at = Take().position;
    SLUICE_ASSIGN_OR_RETURN(ExpressionPtr operand, next());
    depth = std::max(depth, Depth(operand));
    node.rest.push_back({found->second, at, std::move(operand)});
  }
  if (node.rest.empty()) return first;
  node.first = std::move(first);
  return Make(position, std::move(node), depth);
}

ExpressionParser::ExpressionOr ExpressionParser::ParseSum() {
  return ParseArithmetic({{"+", BinaryOp::kAdd}, {"-", BinaryOp::kSubtract}}, [this] { return ParseConcatenation(); });
}

ExpressionParser::ExpressionOr ExpressionParser::ParseConcatenation() {
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

ExpressionParser::ExpressionOr ExpressionParser::ParseProduct() {
  return ParseArithmetic(
      {{"*", BinaryOp::kMultiply}, {"/", BinaryOp::kDivide}, {"//", BinaryOp::kFloorDivide}, {"%", BinaryOp::kModulo}},
      [this] { return ParsePower(); });
}

ExpressionParser::ExpressionOr ExpressionParser::ParsePower() {
  return ParseArithmetic({{"**", BinaryOp::kPower}}, [this] { return ParseUnary(/*with_filters=*/true); });
}

ExpressionParser::ExpressionOr ExpressionParser::ParseUnary(bool with_filters) {
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

ExpressionParser::ExpressionOr ExpressionParser::ParsePrimary() {
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

ExpressionParser::ExpressionOr ExpressionParser::ParseName(const Token& token) {
  if (token.text == "true" || token.text == "True") return Make(token.position, Literal{Value::Bool(true)}, 0);
  if (token.text == "false" || token.text == "False") return Make(token.position, Literal{Value::Bool(false)}, 0);
  if (token.text == "none" || token.text == "None") return Make(token.position, Literal{Value::None()}, 0);
  return MakeVariable(token);
}

ExpressionParser::ExpressionOr ExpressionParser::ParseNumber(const Token& token) {
  if (token.kind == TokenKind::kFloat) {
    double d = 0;
    if (!absl::SimpleAtod(token.text, &d)) return SyntaxError(token.position, "not a number");
    return Make(token.position, Literal{Value::Float(d)}, 0);
  }
  const char prefix = token.text.size() > 2 && token.text[0] == '0' ? static_cast<char>(token.text[1] | 32) : '\0';
  const int base = prefix == 'x' ? 16 : prefix == 'o' ? 8 : prefix == 'b' ? 2 : 10;
  const std::string digits = base == 10 ? token.text : token.text.substr(2);
  auto value = ParseInteger(digits, base, Origin::kTemplate, *ast_.heap);
  if (!value.ok()) return SyntaxError(token.position, value.status().message());
  if (value->is(Kind::kUndefined)) return SyntaxError(token.position, absl::StrCat("'", token.text, "' is no integer"));
  return Make(token.position, Literal{*value}, 0);
}

ExpressionParser::ExpressionOr ExpressionParser::ParseList(const Position& position) {
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

ExpressionParser::ExpressionOr ExpressionParser::ParseDict(const Position& position) {
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

ExpressionParser::ExpressionOr ExpressionParser::ParsePostfix(ExpressionPtr node) {
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

ExpressionParser::ExpressionOr ExpressionParser::ParseAttribute(ExpressionPtr object) {
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

ExpressionParser::ExpressionOr ExpressionParser::ParseSubscript(ExpressionPtr object) {
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

ExpressionParser::ExpressionOr ExpressionParser::ParseCall(ExpressionPtr callee) {
  const Position position = current().position;
  Call node{std::move(callee), {}};
  SLUICE_ASSIGN_OR_RETURN(node.arguments, ParseArguments());
  const int depth = std::max(Depth(node.callee), Depth(node.arguments));
  return Make(position, std::move(node), depth);
}

absl::StatusOr<Arguments> ExpressionParser::ParseArguments() {
  SLUICE_RETURN_IF_ERROR(ExpectOperator("("));
  Arguments arguments;
  for (bool first = true; !SkipOperator(")"); first = false) {
    if (!first) {
      SLUICE_RETURN_IF_ERROR(ExpectOperator(","));
      if (SkipOperator(")")) break;
    }
    const Position position = current().position;
    const bool starred = SkipOperator("*");
    if (starred || SkipOperator("**")) {
      ExpressionPtr& more = starred ? arguments.more_positional : arguments.more_keyword;
      if (more || arguments.more_keyword)
        return SyntaxError(position, "an argument with a star stands in the wrong place");
      SLUICE_ASSIGN_OR_RETURN(more, ParseExpression());
    } else if (arguments.more_keyword) {
      return SyntaxError(position, "an argument follows one with two stars");
    } else if (current().kind == TokenKind::kName && following().IsOperator("=")) {
      std::string name = Take().text;
      ++next_;
      SLUICE_ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
      arguments.keyword.emplace_back(std::move(name), std::move(value));
    } else if (!arguments.keyword.empty() || arguments.more_positional) {
      return SyntaxError(position, "a positional argument follows one with a keyword");
    } else {
      SLUICE_ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
      arguments.positional.push_back(std::move(value));
    }
  }
  return arguments;
}

absl::StatusOr<std::string> ExpressionParser::ParseDottedName() {
  SLUICE_ASSIGN_OR_RETURN(std::string name, ExpectName());
  while (SkipOperator(".")) {
    SLUICE_ASSIGN_OR_RETURN(const std::string part, ExpectName());
    absl::StrAppend(&name, ".", part);
  }
  return name;
}

ExpressionParser::ExpressionOr ExpressionParser::ParseFiltersAndTests(ExpressionPtr node) {
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

absl::StatusOr<FilterCall> ExpressionParser::ParseFilter() {
  FilterCall filter;
  filter.position = current().position;
  SLUICE_ASSIGN_OR_RETURN(filter.name, ParseDottedName());
  filter.builtin = FindFilter(filter.name);
  if (filter.builtin == nullptr) Warn(filter.position, absl::StrCat("there is no filter '", filter.name, "'"));
  if (current().IsOperator("(")) {
    SLUICE_ASSIGN_OR_RETURN(filter.arguments, ParseArguments());
  }
  return filter;
}

absl::StatusOr<std::vector<FilterCall>> ExpressionParser::ParseFilters() {
  std::vector<FilterCall> filters;
  do {
    SLUICE_ASSIGN_OR_RETURN(FilterCall filter, ParseFilter());
    filters.push_back(std::move(filter));
  } while (SkipOperator("|"));
  return filters;
}

ExpressionParser::ExpressionOr ExpressionParser::ParseTest(ExpressionPtr operand) {
  const Position position = Take().position;
  const bool negated = SkipName("not");
  Test node;
  node.operand = std::move(operand);
  const Position name_position = current().position;
  SLUICE_ASSIGN_OR_RETURN(node.name, ParseDottedName());
  node.builtin = FindTest(node.name);
  if (node.builtin == nullptr) Warn(name_position, absl::StrCat("there is no test '", node.name, "'"));
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

}  // namespace sluice::jinja
