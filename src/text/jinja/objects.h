#pragma once
// Values with behaviour: what can be called, and the loop variable.
#include <string_view>
#include <vector>

#include "text/jinja/arguments.h"
#include "text/jinja/ast.h"
#include "text/jinja/builtins.h"
#include "text/jinja/value.h"

namespace quire::jinja {

class Interpreter;

// The variables of one scope. Inner scopes, and macros made inside, keep it alive.
class Scope final : public HeapObject {
 public:
  explicit Scope(Ref<Scope> parent) : parent(std::move(parent)) {}
  void clear() override {
    variables.clear();
    parent = {};
  }
  const Value* find_here(Symbol symbol) const {
    for (const auto& variable : variables) {
      if (variable.first == symbol) return &variable.second;
    }
    return nullptr;
  }
  const Value* find(Symbol symbol) const {
    for (const Scope* scope = this; scope; scope = scope->parent.get()) {
      if (const Value* value = scope->find_here(symbol)) return value;
    }
    return nullptr;
  }
  void set(Symbol symbol, Value value);

  std::vector<std::pair<Symbol, Value>> variables;
  Ref<Scope> parent;
};

// Anything of kind kFunction, kMethod or kLoop.
class Callable : public HeapObject {
 public:
  virtual Value call(Interpreter& interpreter, const Arguments& arguments) = 0;
  // Undefined if there is no such attribute.
  virtual Value attribute(Interpreter& interpreter, std::string_view name);
};

class FunctionObject final : public Callable {
 public:
  explicit FunctionObject(Function function) : function_(function) {}
  Value call(Interpreter& interpreter, const Arguments& arguments) override {
    return function_(interpreter, arguments);
  }

 private:
  const Function function_;
};

class MethodObject final : public Callable {
 public:
  MethodObject(Value self, Method method) : self_(std::move(self)), method_(method) {}
  void clear() override { self_ = Value(); }
  Value call(Interpreter& interpreter, const Arguments& arguments) override {
    return method_(interpreter, self_, arguments);
  }

 private:
  Value self_;
  const Method method_;
};

class MacroObject final : public Callable {
 public:
  MacroObject(const MacroDefinition& definition, Ref<Scope> closure)
      : definition_(definition), closure_(std::move(closure)) {}
  void clear() override { closure_ = {}; }
  Value call(Interpreter& interpreter, const Arguments& arguments) override;
  Value attribute(Interpreter& interpreter, std::string_view name) override;

 private:
  const MacroDefinition& definition_;
  Ref<Scope> closure_;
};

// The variable "loop".
class LoopObject final : public Callable {
 public:
  LoopObject(const For& node, Ref<Scope> around, Value source, int64_t depth)
      : node_(node), around_(std::move(around)), source_(std::move(source)), depth_(depth) {}
  void clear() override {
    source_ = Value();
    last_changed_.clear();
    around_ = {};
  }
  // Renders the loop again over other items, if it is recursive.
  Value call(Interpreter& interpreter, const Arguments& arguments) override;
  Value attribute(Interpreter& interpreter, std::string_view name) override;

  const std::vector<Value>& items() const { return source_.items(); }
  int64_t index = 0;  // of the current item, from 0

  static Value cycle(Interpreter& interpreter, const Value& self, const Arguments& arguments);
  static Value changed(Interpreter& interpreter, const Value& self, const Arguments& arguments);

 private:
  const For& node_;
  Ref<Scope> around_;
  Value source_;  // a list
  const int64_t depth_;
  bool has_changed_ = false;
  std::vector<Value> last_changed_;
};

}  // namespace quire::jinja
