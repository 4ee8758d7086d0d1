// Statements; evaluate.cc has the expressions.
#include "text/jinja/interpreter.h"

#include <fmt/format.h>

#include "text/jinja/depth.h"
#include "text/jinja/print.h"

namespace quire::jinja {

// Makes a new innermost scope for as long as it lives.
class Interpreter::NewScope {
 public:
  NewScope(Interpreter& interpreter, Ref<Scope> parent)
      : interpreter_(interpreter), around_(interpreter.scope_), parent_(std::move(parent)) {
    interpreter.scope_ = Ref(interpreter.arena_.make<Scope>(parent_));
  }
  explicit NewScope(Interpreter& interpreter) : NewScope(interpreter, interpreter.scope_) {}
  NewScope(const NewScope&) = delete;
  NewScope& operator=(const NewScope&) = delete;
  ~NewScope() { interpreter_.scope_ = std::move(around_); }

  // Empties the scope; one that a macro holds on to is replaced.
  void restart() {
    if (interpreter_.scope_->is_shared()) {
      interpreter_.scope_ = Ref(interpreter_.arena_.make<Scope>(parent_));
    } else {
      interpreter_.scope_->variables.clear();
    }
  }

 private:
  Interpreter& interpreter_;
  Ref<Scope> around_, parent_;
};

// One call of a macro, call block or recursive loop.
class Interpreter::Call {
 public:
  explicit Call(Interpreter& interpreter) : interpreter_(interpreter), line_(interpreter.line_) {
    if (++interpreter.call_depth_ > kMaxCallDepth) fail(fmt::format("calls are nested deeper than {}", kMaxCallDepth));
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  ~Call() { --interpreter_.call_depth_; }
  void finish() { interpreter_.line_ = line_; }  // back at the caller's line

 private:
  Interpreter& interpreter_;
  const int line_;
};

Interpreter::Interpreter(const Template& source, const std::tm* now, int64_t max_steps)
    : arena_(max_steps), template_(source), now_(now), scope_(arena_.make<Scope>(Ref<Scope>())) {}

std::string Interpreter::render() {
  scope_ = Ref(arena_.make<Scope>(scope_));  // what the template sets hides what it was given
  top_scope_ = scope_;
  execute(template_.body);
  return std::move(output_);
}

std::tm Interpreter::now() const {
  if (now_) return *now_;
  const std::time_t seconds = std::time(nullptr);
  std::tm local{};
  localtime_r(&seconds, &local);
  return local;
}

void Interpreter::write(std::string_view text) {
  arena_.work(text.size());
  text_size_ += text.size();
  if (text_size_ > Arena::kMaxText) fail(fmt::format("the output is longer than {} MiB", Arena::kMaxText >> 20));
  out_->append(text);
}

void Interpreter::write(const Value& value) {
  if (value.is_string()) {
    write(value.text());
  } else if (!value.is_undefined()) {
    write(to_str(value));
  }
}

// What a filter or call block gives.
void Interpreter::write_string(const Value& value) {
  if (!value.is_string()) fail(fmt::format("expected str instance, {} found", type_name(value)));
  write(value.text());
}

// What run writes, as a string.
template <class Run>
Value Interpreter::capture(Run&& run) {
  std::string text;
  std::string* const around = std::exchange(out_, &text);
  run();
  out_ = around;
  text_size_ -= text.size();
  return Value::string(arena_, std::move(text));
}

Interpreter::Flow Interpreter::execute(const Body& body) {
  const Depth depth(evaluation_depth_);
  for (const auto& statement : body) {
    arena_.step();
    if (const Flow flow = execute(*statement); flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::execute(const Statement& statement) {
  line_ = statement.line;
  switch (statement.kind) {
    case StatementKind::kText:
      write(static_cast<const Text&>(statement).text);
      break;
    case StatementKind::kPrint:
      write(evaluate(*static_cast<const Print&>(statement).value));
      break;
    case StatementKind::kIf:
      return execute_if(static_cast<const If&>(statement));
    case StatementKind::kFor: {
      const auto& node = static_cast<const For&>(statement);
      return execute_for(node, evaluate(*node.iterable), 0);
    }
    case StatementKind::kSet: {
      const auto& node = static_cast<const Set&>(statement);
      assign(node.target, evaluate(*node.value));
      break;
    }
    case StatementKind::kSetBlock:
      return execute_set_block(static_cast<const SetBlock&>(statement));
    case StatementKind::kMacro: {
      const auto& node = static_cast<const Macro&>(statement);
      scope_->set(node.symbol, Value::object(Kind::kFunction, arena_.make<MacroObject>(node.definition, scope_)));
      break;
    }
    case StatementKind::kCallBlock:
      execute_call_block(static_cast<const CallBlock&>(statement));
      break;
    case StatementKind::kFilterBlock: {
      const auto& node = static_cast<const FilterBlock&>(statement);
      Flow flow = Flow::kNormal;
      const Value text = capture([&] {
        const NewScope scope(*this);
        flow = execute(node.body);
      });
      if (flow != Flow::kNormal) return flow;  // the text is lost
      write_string(evaluate_filter(static_cast<const FilterCall&>(*node.filter), text));
      break;
    }
    case StatementKind::kWith:
      return execute_with(static_cast<const With&>(statement));
    case StatementKind::kScope: {
      const auto& node = static_cast<const ScopeBlock&>(statement);
      const NewScope scope(*this, node.sees_locals ? scope_ : top_scope_);
      return execute(node.body);
    }
    case StatementKind::kBreak:
      return Flow::kBreak;
    case StatementKind::kContinue:
      return Flow::kContinue;
    case StatementKind::kInclude:
      evaluate(*static_cast<const Include&>(statement).name);
      fail("other templates can't be included");
  }
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::execute_if(const If& node) {
  for (const auto& [condition, body] : node.branches) {
    if (evaluate(*condition).truth()) return execute(body);
  }
  return execute(node.otherwise);
}

// The items of a loop, as a list that is not copied where there is one.
Value Interpreter::loop_items(const For& node, const Value& iterable) {
  if (!node.filter && iterable.holds_items() && iterable.kind() != Kind::kIterator) return iterable;
  std::vector<Value> items = iterate(arena_, iterable);
  if (node.filter) {
    std::vector<Value> kept;
    NewScope scope(*this);
    for (Value& item : items) {
      arena_.step();
      assign(node.target, item);
      if (evaluate(*node.filter).truth()) kept.push_back(value_of(node.target));
    }
    items = std::move(kept);
  }
  return make_list(arena_, Kind::kList, std::move(items));
}

// What the target's variables hold; several of them are a tuple.
Value Interpreter::value_of(const Target& target) {
  if (!target.is_tuple) return *scope_->find(target.symbol);
  std::vector<Value> parts;
  parts.reserve(target.parts.size());
  for (const Target& part : target.parts) parts.push_back(value_of(part));
  return make_list(arena_, Kind::kTuple, std::move(parts));
}

Interpreter::Flow Interpreter::execute_for(const For& node, const Value& iterable, int64_t depth) {
  line_ = node.line;
  const Ref<Scope> around = scope_;
  const Value items = loop_items(node, iterable);
  auto* loop = arena_.make<LoopObject>(node, around, items, depth);
  const Value loop_value = Value::object(Kind::kLoop, loop);
  NewScope scope(*this);
  bool completed = false;  // jinja2 takes the else branch unless some round came to its end
  for (const Value& item : items.items()) {
    if (loop->index > 0) scope.restart();
    line_ = node.line;
    assign(node.target, item);
    scope_->set(kSymbolLoop, loop_value);
    const Flow flow = execute(node.body);
    completed |= flow == Flow::kNormal;
    if (flow == Flow::kBreak) break;
    ++loop->index;
  }
  if (completed || node.otherwise.empty()) return Flow::kNormal;
  scope.restart();
  return execute(node.otherwise);
}

Interpreter::Flow Interpreter::execute_set_block(const SetBlock& node) {
  Flow flow = Flow::kNormal;
  Value text = capture([&] {
    const NewScope scope(*this);
    flow = execute(node.body);
  });
  if (flow != Flow::kNormal) return flow;
  if (node.filter) text = evaluate_filter(static_cast<const FilterCall&>(*node.filter), text);
  assign(node.target, std::move(text));
  return Flow::kNormal;
}

void Interpreter::execute_call_block(const CallBlock& node) {
  const Value caller = Value::object(Kind::kFunction, arena_.make<MacroObject>(node.caller, scope_));
  write_string(evaluate_call(static_cast<const jinja::Call&>(*node.call), &caller));
}

Interpreter::Flow Interpreter::execute_with(const With& node) {
  std::vector<Value> values;
  values.reserve(node.assignments.size());
  for (const auto& assignment : node.assignments) values.push_back(evaluate(*assignment.second));
  const NewScope scope(*this);
  for (size_t i = 0; i < values.size(); ++i) assign(node.assignments[i].first, std::move(values[i]));
  return execute(node.body);
}

void Interpreter::assign(const Target& target, Value value) {
  if (target.is_tuple) {
    if (value.is_undefined()) value.fail_undefined();
    const std::vector<Value> parts = iterate(arena_, value);
    if (parts.size() != target.parts.size()) {
      fail(parts.size() < target.parts.size()
               ? fmt::format("not enough values to unpack (expected {}, got {})", target.parts.size(), parts.size())
               : fmt::format("too many values to unpack (expected {})", target.parts.size()));
    }
    for (size_t i = 0; i < parts.size(); ++i) assign(target.parts[i], parts[i]);
  } else if (target.attribute.empty()) {
    scope_->set(target.symbol, std::move(value));
  } else {
    const Value* const object = scope_->find(target.symbol);
    if (!object || object->kind() != Kind::kNamespace) fail("cannot assign attribute on non-namespace object");
    set_attribute(*object, target.attribute, std::move(value));
  }
}

void Interpreter::set_attribute(const Value& object, std::string_view name, Value value) {
  if (name.starts_with('_')) {
    fail(fmt::format("a namespace cannot hold the attribute '{}': its name begins with an underscore", name));
  }
  DictObject& attributes = object.as<NamespaceObject>();
  attributes.set(Value::borrowed(name), std::move(value));
}

Value Interpreter::call_macro(const MacroDefinition& definition, const Ref<Scope>& closure,
                              const Arguments& arguments) {
  Call call(*this);
  const NewScope scope(*this, closure);
  const size_t parameters = definition.parameters.size();
  const size_t positional = std::min(arguments.positional.size(), parameters);
  for (size_t i = 0; i < positional; ++i) scope_->set(definition.parameters[i], arguments.positional[i]);

  std::vector<std::pair<Value, Value>> extra;  // keyword arguments that are no parameters
  const Value* caller = nullptr;
  for (const auto& [name, value] : arguments.keyword) {
    size_t index = positional;
    while (index < parameters && definition.parameter_names[index] != name.text()) ++index;
    if (index < parameters) {
      scope_->set(definition.parameters[index], value);
    } else if (definition.uses_caller && name.text() == "caller") {
      caller = &value;
    } else {
      extra.emplace_back(name, value);
    }
  }
  if (!extra.empty() && !definition.uses_kwargs) {
    fail(fmt::format("macro '{}' takes no keyword argument '{}'", definition.name, extra[0].first.text()));
  }
  if (arguments.positional.size() > parameters && !definition.uses_varargs) {
    fail(fmt::format("macro '{}' takes not more than {} argument(s)", definition.name, parameters));
  }
  if (definition.uses_caller) {
    scope_->set(kSymbolCaller, caller ? *caller : Value::undefined(Missing::kHint, "No caller defined"));
  }
  if (definition.uses_kwargs) {
    Value kwargs;
    DictObject& dict = make_dict(arena_, kwargs);
    for (auto& [name, value] : extra) dict.set(std::move(name), std::move(value));
    scope_->set(kSymbolKwargs, std::move(kwargs));
  }
  if (definition.uses_varargs) {
    std::vector<Value> rest(arguments.positional.begin() + static_cast<std::ptrdiff_t>(positional),
                            arguments.positional.end());
    scope_->set(kSymbolVarargs, make_list(arena_, Kind::kTuple, std::move(rest)));
  }
  const size_t first_default = parameters - definition.defaults.size();
  for (size_t i = positional; i < parameters; ++i) {
    if (scope_->find_here(definition.parameters[i])) continue;
    scope_->set(definition.parameters[i], i >= first_default
                                              ? evaluate(*definition.defaults[i - first_default])
                                              : Value::undefined(arena_, fmt::format("parameter '{}' was not provided",
                                                                                     definition.parameter_names[i])));
  }
  Value text = capture([&] { execute(definition.body); });
  call.finish();
  return text;
}

Value Interpreter::call_loop(const For& node, const Ref<Scope>& around, const Value& iterable, int64_t depth) {
  Call call(*this);
  const NewScope scope(*this, around);
  Value text = capture([&] { execute_for(node, iterable, depth); });
  call.finish();
  return text;
}

}  // namespace quire::jinja
