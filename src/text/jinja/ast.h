#pragma once
// The parsed template. Immutable, so that any number of renderings may share it.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/builtins.h"
#include "text/jinja/operators.h"
#include "text/jinja/value.h"

namespace quire::jinja {

using Symbol = int32_t;  // a variable's name, numbered by the parser

enum class ExpressionKind : uint8_t {
  kConstant,
  kName,
  kSequence,
  kDict,
  kAttribute,
  kItem,
  kSlice,
  kCall,
  kFilter,
  kTest,
  kUnary,
  kBinary,
  kLogic,
  kCompare,
  kConcat,
  kConditional,
};

struct Expression {
  explicit Expression(ExpressionKind kind) : kind(kind) {}
  Expression(const Expression&) = delete;
  Expression& operator=(const Expression&) = delete;
  virtual ~Expression() = default;

  const ExpressionKind kind;
  int line = 1;
  int depth = 1;  // of the tree below
};
using ExpressionPtr = std::unique_ptr<Expression>;

struct CallArguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> keyword;
  ExpressionPtr star, double_star;  // *list, **dict
};

struct Constant : Expression {
  Constant() : Expression(ExpressionKind::kConstant) {}
  std::string text;  // what a string value looks at
  Value value;
};
struct Name : Expression {
  Name() : Expression(ExpressionKind::kName) {}
  Symbol symbol = 0;
};
struct Sequence : Expression {
  explicit Sequence(Kind type) : Expression(ExpressionKind::kSequence), type(type) {}
  Kind type;  // kList or kTuple
  std::vector<ExpressionPtr> items;
};
struct DictLiteral : Expression {
  DictLiteral() : Expression(ExpressionKind::kDict) {}
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> entries;
};
struct Attribute : Expression {
  Attribute() : Expression(ExpressionKind::kAttribute) {}
  ExpressionPtr object;
  std::string name;
};
struct Item : Expression {
  Item() : Expression(ExpressionKind::kItem) {}
  ExpressionPtr object, index;
};
struct Slice : Expression {
  Slice() : Expression(ExpressionKind::kSlice) {}
  ExpressionPtr object, start, stop, stride;  // the last three may be null
};
struct Call : Expression {
  Call() : Expression(ExpressionKind::kCall) {}
  ExpressionPtr callee;
  CallArguments arguments;
};
struct FilterCall : Expression {
  FilterCall() : Expression(ExpressionKind::kFilter) {}
  ExpressionPtr input;  // null: the text of a filter or set block
  std::string name;
  Filter function = nullptr;  // null if there is none of that name
  CallArguments arguments;
};
struct TestCall : Expression {
  TestCall() : Expression(ExpressionKind::kTest) {}
  ExpressionPtr input;
  std::string name;
  Test function = nullptr;
  CallArguments arguments;
  bool negated = false;
};
struct Unary : Expression {
  enum Operator : uint8_t { kNot, kNegate, kPlus };
  explicit Unary(Operator op) : Expression(ExpressionKind::kUnary), op(op) {}
  Operator op;
  ExpressionPtr operand;
};
struct Binary : Expression {
  explicit Binary(BinaryOperator op) : Expression(ExpressionKind::kBinary), op(op) {}
  BinaryOperator op;
  ExpressionPtr left, right;
};
struct Logic : Expression {
  explicit Logic(bool is_and) : Expression(ExpressionKind::kLogic), is_and(is_and) {}
  bool is_and;
  ExpressionPtr left, right;
};
struct Compare : Expression {
  Compare() : Expression(ExpressionKind::kCompare) {}
  ExpressionPtr first;
  std::vector<std::pair<Comparison, ExpressionPtr>> rest;
};
struct Concat : Expression {
  Concat() : Expression(ExpressionKind::kConcat) {}
  std::vector<ExpressionPtr> parts;
};
struct Conditional : Expression {
  Conditional() : Expression(ExpressionKind::kConditional) {}
  ExpressionPtr condition, then, otherwise;  // otherwise may be null
};

// What an assignment sets: a variable, an attribute of a namespace, or several of them.
struct Target {
  Symbol symbol = 0;
  std::string attribute;  // if not empty, of the namespace in symbol
  std::vector<Target> parts;
  bool is_tuple = false;
};

enum class StatementKind : uint8_t {
  kText,
  kPrint,
  kIf,
  kFor,
  kSet,
  kSetBlock,
  kMacro,
  kCallBlock,
  kFilterBlock,
  kWith,
  kScope,
  kBreak,
  kContinue,
  kInclude,
};

struct Statement {
  explicit Statement(StatementKind kind) : kind(kind) {}
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;
  virtual ~Statement() = default;

  const StatementKind kind;
  int line = 1;
};
using Body = std::vector<std::unique_ptr<Statement>>;

struct Text : Statement {
  Text() : Statement(StatementKind::kText) {}
  std::string text;
};
struct Print : Statement {
  Print() : Statement(StatementKind::kPrint) {}
  ExpressionPtr value;
};
struct If : Statement {
  If() : Statement(StatementKind::kIf) {}
  std::vector<std::pair<ExpressionPtr, Body>> branches;
  Body otherwise;
};
struct For : Statement {
  For() : Statement(StatementKind::kFor) {}
  Target target;
  ExpressionPtr iterable, filter;  // filter may be null
  Body body, otherwise;
  bool recursive = false;
};
struct Set : Statement {
  Set() : Statement(StatementKind::kSet) {}
  Target target;
  ExpressionPtr value;
};
struct SetBlock : Statement {
  SetBlock() : Statement(StatementKind::kSetBlock) {}
  Target target;
  ExpressionPtr filter;  // may be null
  Body body;
};
// A macro, or the body of a call block.
struct MacroDefinition {
  std::string name;
  std::vector<Symbol> parameters;
  std::vector<std::string> parameter_names;
  std::vector<ExpressionPtr> defaults;  // of the last parameters
  Body body;
  bool uses_caller = false, uses_varargs = false, uses_kwargs = false;
};
struct Macro : Statement {
  Macro() : Statement(StatementKind::kMacro) {}
  Symbol symbol = 0;
  MacroDefinition definition;
};
struct CallBlock : Statement {
  CallBlock() : Statement(StatementKind::kCallBlock) {}
  ExpressionPtr call;  // a Call
  MacroDefinition caller;
};
struct FilterBlock : Statement {
  FilterBlock() : Statement(StatementKind::kFilterBlock) {}
  ExpressionPtr filter;
  Body body;
};
struct With : Statement {
  With() : Statement(StatementKind::kWith) {}
  std::vector<std::pair<Target, ExpressionPtr>> assignments;
  Body body;
};
// block and generation: variables that are set inside are not seen outside.
struct ScopeBlock : Statement {
  ScopeBlock() : Statement(StatementKind::kScope) {}
  Body body;
  bool sees_locals = true;  // else only what is set at the template's top level
};
// An error where it is reached: there is nothing to load other templates from.
struct Include : Statement {
  Include() : Statement(StatementKind::kInclude) {}
  ExpressionPtr name;
};
struct LoopControl : Statement {
  explicit LoopControl(StatementKind kind) : Statement(kind) {}
};

// Symbols with a fixed number.
enum WellKnownSymbol : Symbol { kSymbolLoop, kSymbolCaller, kSymbolVarargs, kSymbolKwargs, kWellKnownSymbols };

struct Template {
  Body body;
  std::vector<std::string> symbols;  // names by number
  std::vector<Function> globals;     // what each name means if no variable has it; null: nothing
};

}  // namespace quire::jinja
