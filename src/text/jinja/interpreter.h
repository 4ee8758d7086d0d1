#pragma once
// Renders a parsed template once.
#include <ctime>
#include <string>
#include <string_view>

#include "text/jinja/arena.h"
#include "text/jinja/ast.h"
#include "text/jinja/objects.h"

namespace quire::jinja {

inline constexpr int kMaxCallDepth = 64;           // of macros, call blocks and recursive loops
inline constexpr int kMaxEvaluationDepth = 2'000;  // of nested expressions and statements, through all calls

class Interpreter {
 public:
  // The template must outlive the interpreter, and what the variables look at too. now: local time for strftime_now;
  // null: the clock.
  Interpreter(const Template& source, const std::tm* now, int64_t max_steps = Arena::kMaxSteps);

  void set_variable(Symbol symbol, Value value) { scope_->set(symbol, std::move(value)); }
  // Once. Throws Failure, which happened at line().
  std::string render();
  int line() const { return line_; }

  Arena& arena() { return arena_; }
  std::tm now() const;

  // Python's getattr and [] as the sandboxed environment does them. name is a string.
  Value attribute(const Value& object, const Value& name);
  Value attribute(const Value& object, std::string_view name) { return attribute(object, Value::borrowed(name)); }
  Value item(const Value& object, const Value& index);
  void set_attribute(const Value& object, std::string_view name, Value value);

  Value call(const Value& callee, const Arguments& arguments);
  Value call_filter(std::string_view name, const Value& input, const Arguments& arguments);
  bool call_test(std::string_view name, const Value& input, const Arguments& arguments);

  Value call_macro(const MacroDefinition& definition, const Ref<Scope>& closure, const Arguments& arguments);
  Value call_loop(const For& node, const Ref<Scope>& around, const Value& iterable, int64_t depth);

 private:
  enum class Flow { kNormal, kBreak, kContinue };
  class Depth;
  class Call;
  class NewScope;

  // Statements.
  Flow execute(const Body& body);
  Flow execute(const Statement& statement);
  Flow execute_if(const If& node);
  Flow execute_for(const For& node, const Value& iterable, int64_t depth);
  Flow execute_set_block(const SetBlock& node);
  void execute_call_block(const CallBlock& node);
  Flow execute_with(const With& node);
  Value loop_items(const For& node, const Value& iterable);
  void assign(const Target& target, Value value);
  Value value_of(const Target& target);
  void write(std::string_view text);
  void write(const Value& value);
  void write_string(const Value& value);
  template <class Run>
  Value capture(Run&& run);

  // Expressions.
  Value evaluate(const Expression& node);
  Value evaluate_name(const Name& node);
  Value evaluate_sequence(const Sequence& node);
  Value evaluate_dict(const DictLiteral& node);
  Value evaluate_slice(const Slice& node);
  Value evaluate_call(const jinja::Call& node, const Value* caller = nullptr);
  // text: what a filter without an input takes.
  Value evaluate_filter(const FilterCall& node, const Value& text);
  Value evaluate_test(const TestCall& node);
  Value evaluate_unary(const Unary& node);
  Value evaluate_binary(const Binary& node);
  Value evaluate_compare(const Compare& node);
  Value evaluate_concat(const Concat& node);
  Value evaluate_conditional(const Conditional& node);
  Arguments evaluate_arguments(const CallArguments& node);

  Arena arena_;  // first, so that it outlives every value below
  const Template& template_;
  const std::tm* now_;
  Ref<Scope> scope_, top_scope_;
  std::string output_;
  std::string* out_ = &output_;
  size_t text_size_ = 0;  // of output_ and all texts being captured
  int line_ = 1;
  int call_depth_ = 0;
  int evaluation_depth_ = 0;
};

}  // namespace quire::jinja
