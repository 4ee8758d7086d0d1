#pragma once
// The part of the parser that reads expressions; parser.cc adds statements.
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"

namespace quire::jinja {

class ExpressionParser {
 protected:
  explicit ExpressionParser(std::vector<Token> tokens);

  [[noreturn]] void fail(std::string reason) const { throw SyntaxError{current().line, std::move(reason)}; }

  const Token& current() const { return tokens_[at_]; }
  const Token& next() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  bool at(TokenType type) const { return current().type == type; }
  bool at_name(std::string_view name) const { return at(TokenType::kName) && current().text == name; }
  void skip() {
    if (at_ + 1 < tokens_.size()) ++at_;
  }
  bool skip_if(TokenType type);
  bool skip_if_name(std::string_view name);
  Token& expect(TokenType type);  // and moves on
  void expect_name(std::string_view name);
  Symbol symbol_of(const std::string& name);

  ExpressionPtr parse_expression(bool with_conditional = true);
  // Expressions with commas between them are a tuple. end_name: also ends it.
  ExpressionPtr parse_tuple(bool with_conditional = true, std::string_view end_name = {}, bool in_parentheses = false);
  // Filters applied to input, one at least if `first` (then without a leading "|").
  ExpressionPtr parse_filters(ExpressionPtr input, bool first);

  // Filters and tests that do not exist end the parsing, but not where a condition may keep them from being reached:
  // in a conditional expression, and in what stands in an `if` block itself (is_conditional_).
  void check_names();
  bool is_conditional_ = false;

  std::vector<std::string> symbols_;
  // Which special names the macros around here use.
  struct MacroUses {
    bool caller = false, varargs = false, kwargs = false;
  };
  std::vector<MacroUses> macros_;

 private:
  class Nesting;

  // Sets the line and the depth of a node whose children are complete.
  template <class Node>
  std::unique_ptr<Node> finish(std::unique_ptr<Node> node, int line, std::initializer_list<const Expression*> children);
  template <class Node>
  std::unique_ptr<Node> finish(std::unique_ptr<Node> node, int line, const Expression* first,
                               const CallArguments& arguments);
  void set_depth(Expression& node, int deepest_child) const;

  ExpressionPtr parse_conditional();
  ExpressionPtr parse_or();
  ExpressionPtr parse_and();
  ExpressionPtr parse_not();
  ExpressionPtr parse_compare();
  ExpressionPtr parse_sum();
  ExpressionPtr parse_concat();
  ExpressionPtr parse_product();
  ExpressionPtr parse_power();
  ExpressionPtr parse_unary(bool with_filters = true);
  ExpressionPtr parse_primary();
  ExpressionPtr parse_name();
  ExpressionPtr parse_string();
  ExpressionPtr parse_list();
  ExpressionPtr parse_dict();
  ExpressionPtr parse_postfix(ExpressionPtr node);
  ExpressionPtr parse_subscript(ExpressionPtr object);
  ExpressionPtr parse_call(ExpressionPtr callee);
  ExpressionPtr parse_test(ExpressionPtr input);
  CallArguments parse_arguments();
  bool at_tuple_end(std::string_view end_name) const;
  std::string parse_dotted_name();

  std::vector<Token> tokens_;
  size_t at_ = 0;
  std::vector<SyntaxError> unknown_names_;  // of the statement so far
  std::map<std::string, Symbol, std::less<>> symbol_numbers_;
  int nesting_ = 0;
};

}  // namespace quire::jinja
