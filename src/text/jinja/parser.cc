#include "text/jinja/parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>

#include "text/jinja/expression_parser.h"

namespace quire::jinja {
namespace {

using EndTags = std::initializer_list<std::string_view>;

std::string quoted_list(EndTags tags) {
  std::string out;
  for (const std::string_view tag : tags) out += fmt::format("{}'{}'", out.empty() ? "" : " or ", tag);
  return out;
}

class Parser : public ExpressionParser {
 public:
  explicit Parser(std::vector<Token> tokens) : ExpressionParser(std::move(tokens)) {}

  Template run() {
    Template result;
    result.body = parse_body({});
    for (const std::string& name : symbols_) result.globals.push_back(find_global(name));
    result.symbols = std::move(symbols_);
    return result;
  }

 private:
  // Statements up to a block that begins with one of `ends`, which becomes the current token; up to the end if there
  // are none.
  Body parse_body(EndTags ends) {
    if (++block_depth_ > kMaxBlockDepth) fail(fmt::format("blocks are nested deeper than {}", kMaxBlockDepth));
    Body body;
    while (!at(TokenType::kEnd)) {
      const int line = current().line;
      if (at(TokenType::kData)) {
        auto text = std::make_unique<Text>();
        text->text = std::move(expect(TokenType::kData).text);
        add(body, std::move(text), line);
      } else if (skip_if(TokenType::kVariableBegin)) {
        auto print = std::make_unique<Print>();
        print->value = parse_tuple();
        check_names();
        expect(TokenType::kVariableEnd);
        add(body, std::move(print), line);
      } else {
        expect(TokenType::kBlockBegin);
        if (!at(TokenType::kName)) fail("tag name expected");
        if (std::find(ends.begin(), ends.end(), current().text) != ends.end()) {
          --block_depth_;
          return body;
        }
        parse_statement(body, ends);
        check_names();
        expect(TokenType::kBlockEnd);
      }
    }
    if (ends.size() > 0) {
      fail(fmt::format("Unexpected end of template. Jinja was looking for the following tags: {}.", quoted_list(ends)));
    }
    --block_depth_;
    return body;
  }

  // The body of a block whose first tag is read up to its end.
  Body parse_block(EndTags ends, bool is_conditional = false) {
    check_names();
    skip_if(TokenType::kColon);
    expect(TokenType::kBlockEnd);
    const bool around = std::exchange(is_conditional_, is_conditional);
    Body body = parse_body(ends);
    is_conditional_ = around;
    return body;
  }
  Body parse_block_and_end(std::string_view end, bool is_conditional = false) {
    Body body = parse_block({end}, is_conditional);
    skip();
    return body;
  }

  static void add(Body& body, std::unique_ptr<Statement> statement, int line) {
    statement->line = line;
    body.push_back(std::move(statement));
  }

  void parse_statement(Body& body, EndTags ends) {
    const int line = current().line;
    const std::string tag = current().text;
    skip();
    if (tag == "if") {
      add(body, parse_if(), line);
    } else if (tag == "for") {
      add(body, parse_for(), line);
    } else if (tag == "set") {
      add(body, parse_set(), line);
    } else if (tag == "macro") {
      add(body, parse_macro(), line);
    } else if (tag == "call") {
      add(body, parse_call_block(), line);
    } else if (tag == "filter") {
      auto block = std::make_unique<FilterBlock>();
      block->filter = parse_filters(nullptr, true);
      block->body = parse_block_and_end("endfilter");
      add(body, std::move(block), line);
    } else if (tag == "with") {
      add(body, parse_with(), line);
    } else if (tag == "generation") {
      auto block = std::make_unique<ScopeBlock>();
      const int loops_around = std::exchange(loop_depth_, 0);  // out of reach of break and continue
      block->body = parse_block_and_end("endgeneration");
      loop_depth_ = loops_around;
      add(body, std::move(block), line);
    } else if (tag == "block") {
      add(body, parse_named_block(), line);
    } else if (tag == "print") {
      parse_print(body, line);
    } else if (tag == "break" || tag == "continue") {
      if (loop_depth_ == 0) fail(fmt::format("'{}' outside of a loop", tag));
      add(body, std::make_unique<LoopControl>(tag == "break" ? StatementKind::kBreak : StatementKind::kContinue), line);
    } else if (tag == "include") {
      add(body, parse_include(), line);
    } else if (tag == "import" || tag == "from" || tag == "extends" || tag == "autoescape") {
      throw SyntaxError{line, fmt::format("the tag '{}' is not supported in chat templates", tag)};
    } else {
      std::string reason = fmt::format("Encountered unknown tag '{}'.", tag);
      if (ends.size() > 0) reason += fmt::format(" Jinja was looking for the following tags: {}.", quoted_list(ends));
      throw SyntaxError{line, std::move(reason)};
    }
  }

  std::unique_ptr<Statement> parse_if() {
    auto node = std::make_unique<If>();
    while (true) {
      const bool around = std::exchange(is_conditional_, true);
      ExpressionPtr condition = parse_tuple(false);
      check_names();
      is_conditional_ = around;
      Body branch = parse_block({"elif", "else", "endif"}, true);
      node->branches.emplace_back(std::move(condition), std::move(branch));
      if (skip_if_name("elif")) continue;
      if (skip_if_name("else")) {
        node->otherwise = parse_block_and_end("endif", true);
      } else {
        skip();
      }
      return node;
    }
  }

  std::unique_ptr<Statement> parse_for() {
    auto node = std::make_unique<For>();
    node->target = parse_target(false, "in");
    expect_name("in");
    node->iterable = parse_tuple(false, "recursive");
    if (skip_if_name("if")) node->filter = parse_expression();
    node->recursive = skip_if_name("recursive");
    ++loop_depth_;
    node->body = parse_block({"endfor", "else"});
    --loop_depth_;
    if (skip_if_name("else")) {
      node->otherwise = parse_block_and_end("endfor");
    } else {
      skip();
    }
    return node;
  }

  std::unique_ptr<Statement> parse_set() {
    Target target = parse_target(true, {});
    if (skip_if(TokenType::kAssign)) {
      auto node = std::make_unique<Set>();
      node->target = std::move(target);
      node->value = parse_tuple();
      return node;
    }
    auto node = std::make_unique<SetBlock>();
    node->target = std::move(target);
    node->filter = parse_filters(nullptr, false);
    node->body = parse_block_and_end("endset");
    return node;
  }

  // One macro's parameters and body. Loops around it do not take its break and continue.
  template <class ParseBody>
  void parse_definition(MacroDefinition& definition, bool with_parameters, ParseBody&& parse_body) {
    const int loops_around = std::exchange(loop_depth_, 0);
    macros_.emplace_back();
    if (with_parameters) parse_parameters(definition);
    parse_body();
    const MacroUses uses = macros_.back();
    macros_.pop_back();
    loop_depth_ = loops_around;
    const auto declares = [&](Symbol symbol) {
      return std::find(definition.parameters.begin(), definition.parameters.end(), symbol) !=
             definition.parameters.end();
    };
    definition.uses_caller = uses.caller && !declares(kSymbolCaller);
    definition.uses_varargs = uses.varargs && !declares(kSymbolVarargs);
    definition.uses_kwargs = uses.kwargs && !declares(kSymbolKwargs);
  }

  void parse_parameters(MacroDefinition& definition) {
    expect(TokenType::kLeftParen);
    while (!at(TokenType::kRightParen)) {
      if (!definition.parameters.empty()) expect(TokenType::kComma);
      const std::string name = parse_assignable_name();
      definition.parameters.push_back(symbol_of(name));
      definition.parameter_names.push_back(name);
      if (skip_if(TokenType::kAssign)) {
        definition.defaults.push_back(parse_expression());
      } else if (!definition.defaults.empty()) {
        fail("non-default argument follows default argument");
      }
    }
    expect(TokenType::kRightParen);
  }

  std::unique_ptr<Statement> parse_macro() {
    auto node = std::make_unique<Macro>();
    node->definition.name = parse_assignable_name();
    node->symbol = symbol_of(node->definition.name);
    parse_definition(node->definition, true, [&] { node->definition.body = parse_block_and_end("endmacro"); });
    return node;
  }

  std::unique_ptr<Statement> parse_call_block() {
    auto node = std::make_unique<CallBlock>();
    node->caller.name = "caller";
    parse_definition(node->caller, at(TokenType::kLeftParen), [&] {
      node->call = parse_expression();
      if (node->call->kind != ExpressionKind::kCall) fail("expected call");
      node->caller.body = parse_block_and_end("endcall");
    });
    return node;
  }

  std::unique_ptr<Statement> parse_with() {
    auto node = std::make_unique<With>();
    while (!at(TokenType::kBlockEnd)) {
      if (!node->assignments.empty()) expect(TokenType::kComma);
      Target target = parse_target(false, {});
      expect(TokenType::kAssign);
      node->assignments.emplace_back(std::move(target), parse_expression());
    }
    node->body = parse_block_and_end("endwith");
    return node;
  }

  std::unique_ptr<Statement> parse_named_block() {
    auto node = std::make_unique<ScopeBlock>();
    const std::string name = expect(TokenType::kName).text;
    node->sees_locals = skip_if_name("scoped");
    skip_if_name("required");
    const int loops_around = std::exchange(loop_depth_, 0);
    node->body = parse_block_and_end("endblock");
    loop_depth_ = loops_around;
    skip_if_name(name);
    return node;
  }

  std::unique_ptr<Statement> parse_include() {
    auto node = std::make_unique<Include>();
    node->name = parse_expression();
    if (skip_if_name("ignore")) expect_name("missing");
    if (skip_if_name("with") || skip_if_name("without")) expect_name("context");
    return node;
  }

  void parse_print(Body& body, int line) {
    for (bool first = true; !at(TokenType::kBlockEnd); first = false) {
      if (!first) expect(TokenType::kComma);
      auto print = std::make_unique<Print>();
      print->value = parse_expression();
      add(body, std::move(print), line);
    }
  }

  std::string parse_assignable_name() {
    std::string name = expect(TokenType::kName).text;
    for (const std::string_view constant : {"true", "false", "none", "True", "False", "None"}) {
      if (name == constant) fail("can't assign to 'const'");
    }
    return name;
  }

  Target parse_single_target(bool with_namespace) {
    if (++target_depth_ > kMaxBlockDepth) fail(fmt::format("a target is nested deeper than {}", kMaxBlockDepth));
    Target target;
    if (skip_if(TokenType::kLeftParen)) {
      target = parse_target(with_namespace, {});
      expect(TokenType::kRightParen);
    } else {
      target.symbol = symbol_of(parse_assignable_name());
      if (with_namespace && skip_if(TokenType::kDot)) target.attribute = expect(TokenType::kName).text;
    }
    --target_depth_;
    return target;
  }

  Target parse_target(bool with_namespace, std::string_view end_name) {
    Target tuple;
    while (true) {
      if (at(TokenType::kRightParen) || at(TokenType::kBlockEnd) || (!end_name.empty() && at_name(end_name))) break;
      tuple.parts.push_back(parse_single_target(with_namespace));
      if (!skip_if(TokenType::kComma)) break;
      tuple.is_tuple = true;
    }
    if (tuple.is_tuple) return tuple;
    if (tuple.parts.empty()) fail(fmt::format("expected a name to assign to, got {}", describe(current())));
    return std::move(tuple.parts[0]);
  }

  int block_depth_ = 0, loop_depth_ = 0, target_depth_ = 0;
};

}  // namespace

Template parse(std::string_view source) { return Parser(tokenize(source)).run(); }

}  // namespace quire::jinja
