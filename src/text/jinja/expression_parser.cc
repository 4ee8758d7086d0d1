#include "text/jinja/expression_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "text/jinja/parser.h"

namespace quire::jinja {
namespace {

constexpr int kMaxNesting = 100;  // of brackets and prefix operators, each some ten calls deep

std::optional<Comparison> comparison_of(TokenType type) {
  switch (type) {
    case TokenType::kEqual:
      return Comparison::kEqual;
    case TokenType::kNotEqual:
      return Comparison::kNotEqual;
    case TokenType::kLess:
      return Comparison::kLess;
    case TokenType::kLessEqual:
      return Comparison::kLessEqual;
    case TokenType::kGreater:
      return Comparison::kGreater;
    case TokenType::kGreaterEqual:
      return Comparison::kGreaterEqual;
    default:
      return std::nullopt;
  }
}

std::optional<BinaryOperator> product_of(TokenType type) {
  switch (type) {
    case TokenType::kMultiply:
      return BinaryOperator::kMultiply;
    case TokenType::kDivide:
      return BinaryOperator::kDivide;
    case TokenType::kFloorDivide:
      return BinaryOperator::kFloorDivide;
    case TokenType::kModulo:
      return BinaryOperator::kModulo;
    default:
      return std::nullopt;
  }
}

int depth_of(const Expression* node) { return node ? node->depth : 0; }

}  // namespace

class ExpressionParser::Nesting {
 public:
  explicit Nesting(ExpressionParser& parser) : parser_(parser) {
    if (++parser_.nesting_ > kMaxNesting)
      parser_.fail(fmt::format("an expression is nested deeper than {}", kMaxNesting));
  }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;
  ~Nesting() { --parser_.nesting_; }

 private:
  ExpressionParser& parser_;
};

ExpressionParser::ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {
  for (const char* name : {"loop", "caller", "varargs", "kwargs"}) symbol_of(name);  // in the order of WellKnownSymbol
}

Symbol ExpressionParser::symbol_of(const std::string& name) {
  const auto [entry, added] = symbol_numbers_.try_emplace(name, static_cast<Symbol>(symbols_.size()));
  if (added) symbols_.push_back(name);
  return entry->second;
}

bool ExpressionParser::skip_if(TokenType type) {
  if (!at(type)) return false;
  skip();
  return true;
}

bool ExpressionParser::skip_if_name(std::string_view name) {
  if (!at_name(name)) return false;
  skip();
  return true;
}

Token& ExpressionParser::expect(TokenType type) {
  if (!at(type)) {
    if (at(TokenType::kEnd)) fail(fmt::format("unexpected end of template, expected '{}'.", describe(type)));
    fail(fmt::format("expected token '{}', got {}", describe(type), describe(current())));
  }
  Token& token = tokens_[at_];
  skip();
  return token;
}

void ExpressionParser::expect_name(std::string_view name) {
  if (!at_name(name)) fail(fmt::format("expected token '{}', got {}", name, describe(current())));
  skip();
}

void ExpressionParser::set_depth(Expression& node, int deepest_child) const {
  node.depth = deepest_child + 1;
  if (node.depth > kMaxExpressionDepth)
    fail(fmt::format("an expression is nested deeper than {}", kMaxExpressionDepth));
}

template <class Node>
std::unique_ptr<Node> ExpressionParser::finish(std::unique_ptr<Node> node, int line,
                                               std::initializer_list<const Expression*> children) {
  node->line = line;
  int deepest = 0;
  for (const Expression* child : children) deepest = std::max(deepest, depth_of(child));
  set_depth(*node, deepest);
  return node;
}

template <class Node>
std::unique_ptr<Node> ExpressionParser::finish(std::unique_ptr<Node> node, int line, const Expression* first,
                                               const CallArguments& arguments) {
  node->line = line;
  int deepest = std::max({depth_of(first), depth_of(arguments.star.get()), depth_of(arguments.double_star.get())});
  for (const auto& argument : arguments.positional) deepest = std::max(deepest, argument->depth);
  for (const auto& argument : arguments.keyword) deepest = std::max(deepest, argument.second->depth);
  set_depth(*node, deepest);
  return node;
}

ExpressionPtr ExpressionParser::parse_expression(bool with_conditional) {
  return with_conditional ? parse_conditional() : parse_or();
}

void ExpressionParser::check_names() {
  if (!is_conditional_ && !unknown_names_.empty()) throw std::move(unknown_names_.front());
  unknown_names_.clear();
}

ExpressionPtr ExpressionParser::parse_conditional() {
  const Nesting nesting(*this);
  int line = current().line;
  const size_t unknown_before = unknown_names_.size();
  ExpressionPtr value = parse_or();
  while (skip_if_name("if")) {
    auto node = std::make_unique<Conditional>();
    node->condition = parse_or();
    node->then = std::move(value);
    if (skip_if_name("else")) node->otherwise = parse_conditional();
    const auto& n = *node;
    value = finish(std::move(node), line, {n.condition.get(), n.then.get(), n.otherwise.get()});
    line = current().line;
    unknown_names_.erase(unknown_names_.begin() + static_cast<std::ptrdiff_t>(unknown_before), unknown_names_.end());
  }
  return value;
}

ExpressionPtr ExpressionParser::parse_or() {
  ExpressionPtr left = parse_and();
  while (at_name("or")) {
    const int line = current().line;
    skip();
    auto node = std::make_unique<Logic>(false);
    node->left = std::move(left);
    node->right = parse_and();
    const auto& n = *node;
    left = finish(std::move(node), line, {n.left.get(), n.right.get()});
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_and() {
  ExpressionPtr left = parse_not();
  while (at_name("and")) {
    const int line = current().line;
    skip();
    auto node = std::make_unique<Logic>(true);
    node->left = std::move(left);
    node->right = parse_not();
    const auto& n = *node;
    left = finish(std::move(node), line, {n.left.get(), n.right.get()});
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_not() {
  if (!at_name("not")) return parse_compare();
  const Nesting nesting(*this);
  const int line = current().line;
  skip();
  auto node = std::make_unique<Unary>(Unary::kNot);
  node->operand = parse_not();
  const auto& n = *node;
  return finish(std::move(node), line, {n.operand.get()});
}

ExpressionPtr ExpressionParser::parse_compare() {
  const int line = current().line;
  ExpressionPtr first = parse_sum();
  auto node = std::make_unique<Compare>();
  int deepest = first->depth;
  while (true) {
    std::optional<Comparison> op = comparison_of(current().type);
    if (op) {
      skip();
    } else if (skip_if_name("in")) {
      op = Comparison::kIn;
    } else if (at_name("not") && next().type == TokenType::kName && next().text == "in") {
      skip();
      skip();
      op = Comparison::kNotIn;
    } else {
      break;
    }
    node->rest.emplace_back(*op, parse_sum());
    deepest = std::max(deepest, node->rest.back().second->depth);
  }
  if (node->rest.empty()) return first;
  node->first = std::move(first);
  node->line = line;
  set_depth(*node, deepest);
  return node;
}

ExpressionPtr ExpressionParser::parse_sum() {
  ExpressionPtr left = parse_concat();
  while (at(TokenType::kAdd) || at(TokenType::kSubtract)) {
    const int line = current().line;
    auto node = std::make_unique<Binary>(at(TokenType::kAdd) ? BinaryOperator::kAdd : BinaryOperator::kSubtract);
    skip();
    node->left = std::move(left);
    node->right = parse_concat();
    const auto& n = *node;
    left = finish(std::move(node), line, {n.left.get(), n.right.get()});
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_concat() {
  const int line = current().line;
  ExpressionPtr first = parse_product();
  if (!at(TokenType::kTilde)) return first;
  auto node = std::make_unique<Concat>();
  int deepest = first->depth;
  node->parts.push_back(std::move(first));
  while (skip_if(TokenType::kTilde)) {
    node->parts.push_back(parse_product());
    deepest = std::max(deepest, node->parts.back()->depth);
  }
  node->line = line;
  set_depth(*node, deepest);
  return node;
}

ExpressionPtr ExpressionParser::parse_product() {
  ExpressionPtr left = parse_power();
  while (const std::optional<BinaryOperator> op = product_of(current().type)) {
    const int line = current().line;
    skip();
    auto node = std::make_unique<Binary>(*op);
    node->left = std::move(left);
    node->right = parse_power();
    const auto& n = *node;
    left = finish(std::move(node), line, {n.left.get(), n.right.get()});
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_power() {
  ExpressionPtr left = parse_unary();
  while (at(TokenType::kPower)) {  // from the left, unlike Python
    const int line = current().line;
    skip();
    auto node = std::make_unique<Binary>(BinaryOperator::kPower);
    node->left = std::move(left);
    node->right = parse_unary();
    const auto& n = *node;
    left = finish(std::move(node), line, {n.left.get(), n.right.get()});
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_unary(bool with_filters) {
  const int line = current().line;
  ExpressionPtr node;
  if (at(TokenType::kSubtract) || at(TokenType::kAdd)) {
    const Nesting nesting(*this);
    auto unary = std::make_unique<Unary>(at(TokenType::kSubtract) ? Unary::kNegate : Unary::kPlus);
    skip();
    unary->operand = parse_unary(false);
    const auto& n = *unary;
    node = finish(std::move(unary), line, {n.operand.get()});
  } else {
    node = parse_primary();
  }
  node = parse_postfix(std::move(node));
  while (with_filters) {
    if (at(TokenType::kPipe)) {
      node = parse_filters(std::move(node), false);
    } else if (at_name("is")) {
      node = parse_test(std::move(node));
    } else if (at(TokenType::kLeftParen)) {
      node = parse_call(std::move(node));
    } else {
      break;
    }
  }
  return node;
}

ExpressionPtr ExpressionParser::parse_primary() {
  const int line = current().line;
  switch (current().type) {
    case TokenType::kName:
      return parse_name();
    case TokenType::kString:
      return parse_string();
    case TokenType::kInteger:
    case TokenType::kFloat: {
      auto node = std::make_unique<Constant>();
      node->value = at(TokenType::kInteger) ? Value::integer(current().integer) : Value::real(current().real);
      skip();
      return finish(std::move(node), line, {});
    }
    case TokenType::kLeftParen: {
      skip();
      ExpressionPtr node = parse_tuple(true, {}, true);
      expect(TokenType::kRightParen);
      return node;
    }
    case TokenType::kLeftBracket:
      return parse_list();
    case TokenType::kLeftBrace:
      return parse_dict();
    default:
      fail(fmt::format("unexpected {}", describe(current())));
  }
}

ExpressionPtr ExpressionParser::parse_name() {
  const int line = current().line;
  const std::string& text = current().text;
  if (text == "true" || text == "True" || text == "false" || text == "False" || text == "none" || text == "None") {
    auto node = std::make_unique<Constant>();
    node->value = text == "none" || text == "None" ? Value::none() : Value::boolean(text == "true" || text == "True");
    skip();
    return finish(std::move(node), line, {});
  }
  auto node = std::make_unique<Name>();
  node->symbol = symbol_of(text);
  for (MacroUses& uses : macros_) {
    uses.caller |= node->symbol == kSymbolCaller;
    uses.varargs |= node->symbol == kSymbolVarargs;
    uses.kwargs |= node->symbol == kSymbolKwargs;
  }
  skip();
  return finish(std::move(node), line, {});
}

ExpressionPtr ExpressionParser::parse_string() {
  const int line = current().line;
  auto node = std::make_unique<Constant>();
  while (at(TokenType::kString)) node->text += expect(TokenType::kString).text;
  node->value = Value::borrowed(node->text);
  return finish(std::move(node), line, {});
}

ExpressionPtr ExpressionParser::parse_list() {
  auto node = std::make_unique<Sequence>(Kind::kList);
  node->line = expect(TokenType::kLeftBracket).line;
  int deepest = 0;
  while (!at(TokenType::kRightBracket)) {
    if (!node->items.empty()) expect(TokenType::kComma);
    if (at(TokenType::kRightBracket)) break;
    node->items.push_back(parse_expression());
    deepest = std::max(deepest, node->items.back()->depth);
  }
  expect(TokenType::kRightBracket);
  set_depth(*node, deepest);
  return node;
}

ExpressionPtr ExpressionParser::parse_dict() {
  auto node = std::make_unique<DictLiteral>();
  node->line = expect(TokenType::kLeftBrace).line;
  int deepest = 0;
  while (!at(TokenType::kRightBrace)) {
    if (!node->entries.empty()) expect(TokenType::kComma);
    if (at(TokenType::kRightBrace)) break;
    ExpressionPtr key = parse_expression();
    expect(TokenType::kColon);
    ExpressionPtr value = parse_expression();
    deepest = std::max({deepest, key->depth, value->depth});
    node->entries.emplace_back(std::move(key), std::move(value));
  }
  expect(TokenType::kRightBrace);
  set_depth(*node, deepest);
  return node;
}

bool ExpressionParser::at_tuple_end(std::string_view end_name) const {
  return at(TokenType::kVariableEnd) || at(TokenType::kBlockEnd) || at(TokenType::kRightParen) ||
         (!end_name.empty() && at_name(end_name));
}

ExpressionPtr ExpressionParser::parse_tuple(bool with_conditional, std::string_view end_name, bool in_parentheses) {
  const int line = current().line;
  auto node = std::make_unique<Sequence>(Kind::kTuple);
  bool is_tuple = false;
  int deepest = 0;
  while (!at_tuple_end(end_name)) {
    node->items.push_back(parse_expression(with_conditional));
    deepest = std::max(deepest, node->items.back()->depth);
    if (!skip_if(TokenType::kComma)) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!node->items.empty()) return std::move(node->items[0]);
    if (!in_parentheses) fail(fmt::format("Expected an expression, got {}", describe(current())));
  }
  node->line = line;
  set_depth(*node, deepest);
  return node;
}

ExpressionPtr ExpressionParser::parse_postfix(ExpressionPtr node) {
  while (true) {
    if (at(TokenType::kDot) || at(TokenType::kLeftBracket)) {
      node = parse_subscript(std::move(node));
    } else if (at(TokenType::kLeftParen)) {
      node = parse_call(std::move(node));
    } else {
      return node;
    }
  }
}

ExpressionPtr ExpressionParser::parse_subscript(ExpressionPtr object) {
  const int line = current().line;
  if (skip_if(TokenType::kDot)) {
    if (at(TokenType::kName)) {
      auto node = std::make_unique<Attribute>();
      node->object = std::move(object);
      node->name = expect(TokenType::kName).text;
      const auto& n = *node;
      return finish(std::move(node), line, {n.object.get()});
    }
    if (!at(TokenType::kInteger)) fail("expected name or number");
    auto index = std::make_unique<Constant>();
    index->value = Value::integer(expect(TokenType::kInteger).integer);
    auto node = std::make_unique<Item>();
    node->object = std::move(object);
    node->index = finish(std::move(index), line, {});
    const auto& n = *node;
    return finish(std::move(node), line, {n.object.get()});
  }
  expect(TokenType::kLeftBracket);
  const auto at_part_end = [this] { return at(TokenType::kColon) || at(TokenType::kRightBracket); };
  ExpressionPtr first = at_part_end() ? nullptr : parse_expression();
  if (!at(TokenType::kColon)) {
    if (!first || at(TokenType::kComma)) {  // none or several make a tuple
      auto tuple = std::make_unique<Sequence>(Kind::kTuple);
      int deepest = 0;
      if (first) {
        deepest = first->depth;
        tuple->items.push_back(std::move(first));
      }
      while (skip_if(TokenType::kComma) && !at(TokenType::kRightBracket)) {
        tuple->items.push_back(parse_expression());
        deepest = std::max(deepest, tuple->items.back()->depth);
      }
      tuple->line = line;
      set_depth(*tuple, deepest);
      first = std::move(tuple);
    }
    expect(TokenType::kRightBracket);
    auto node = std::make_unique<Item>();
    node->object = std::move(object);
    node->index = std::move(first);
    const auto& n = *node;
    return finish(std::move(node), line, {n.object.get(), n.index.get()});
  }
  auto node = std::make_unique<Slice>();
  node->object = std::move(object);
  node->start = std::move(first);
  skip();
  if (!at_part_end()) node->stop = parse_expression();
  if (skip_if(TokenType::kColon) && !at(TokenType::kRightBracket)) node->stride = parse_expression();
  expect(TokenType::kRightBracket);
  const auto& n = *node;
  return finish(std::move(node), line, {n.object.get(), n.start.get(), n.stop.get(), n.stride.get()});
}

CallArguments ExpressionParser::parse_arguments() {
  CallArguments arguments;
  const auto ensure = [this](bool good) {
    if (!good) fail("invalid syntax for function call expression");
  };
  expect(TokenType::kLeftParen);
  for (bool first = true; !at(TokenType::kRightParen); first = false) {
    if (!first) {
      expect(TokenType::kComma);
      if (at(TokenType::kRightParen)) break;
    }
    if (skip_if(TokenType::kMultiply)) {
      ensure(!arguments.star && !arguments.double_star);
      arguments.star = parse_expression();
    } else if (skip_if(TokenType::kPower)) {
      ensure(!arguments.double_star);
      arguments.double_star = parse_expression();
    } else if (at(TokenType::kName) && next().type == TokenType::kAssign) {
      ensure(!arguments.double_star);
      std::string name = expect(TokenType::kName).text;
      for (const auto& [other, value] : arguments.keyword) {
        if (other == name) fail(fmt::format("keyword argument repeated: {}", name));
      }
      skip();
      arguments.keyword.emplace_back(std::move(name), parse_expression());
    } else {
      ensure(!arguments.star && !arguments.double_star && arguments.keyword.empty());
      arguments.positional.push_back(parse_expression());
    }
  }
  expect(TokenType::kRightParen);
  return arguments;
}

ExpressionPtr ExpressionParser::parse_call(ExpressionPtr callee) {
  const int line = current().line;
  auto node = std::make_unique<Call>();
  node->callee = std::move(callee);
  node->arguments = parse_arguments();
  const auto& n = *node;
  return finish(std::move(node), line, n.callee.get(), n.arguments);
}

std::string ExpressionParser::parse_dotted_name() {
  std::string name = expect(TokenType::kName).text;
  while (skip_if(TokenType::kDot)) {
    name += '.';
    name += expect(TokenType::kName).text;
  }
  return name;
}

ExpressionPtr ExpressionParser::parse_filters(ExpressionPtr input, bool first) {
  while (first || at(TokenType::kPipe)) {
    if (!first) skip();
    first = false;
    const int line = current().line;
    auto node = std::make_unique<FilterCall>();
    node->input = std::move(input);
    node->name = parse_dotted_name();
    node->function = find_filter(node->name);
    if (!node->function) unknown_names_.push_back({line, no_filter(node->name)});
    if (at(TokenType::kLeftParen)) node->arguments = parse_arguments();
    const auto& n = *node;
    input = finish(std::move(node), line, n.input.get(), n.arguments);
  }
  return input;
}

ExpressionPtr ExpressionParser::parse_test(ExpressionPtr input) {
  const int line = current().line;
  skip();
  auto node = std::make_unique<TestCall>();
  node->input = std::move(input);
  node->negated = skip_if_name("not");
  node->name = parse_dotted_name();
  node->function = find_test(node->name);
  if (!node->function) unknown_names_.push_back({line, fmt::format("No test named '{}'.", node->name)});
  switch (current().type) {
    case TokenType::kLeftParen:
      node->arguments = parse_arguments();
      break;
    case TokenType::kName:
    case TokenType::kString:
    case TokenType::kInteger:
    case TokenType::kFloat:
    case TokenType::kLeftBracket:
    case TokenType::kLeftBrace:
      if (at_name("else") || at_name("or") || at_name("and")) break;
      if (at_name("is")) fail("You cannot chain multiple tests with is");
      node->arguments.positional.push_back(parse_postfix(parse_primary()));
      break;
    default:
      break;
  }
  const auto& n = *node;
  return finish(std::move(node), line, n.input.get(), n.arguments);
}

}  // namespace quire::jinja
