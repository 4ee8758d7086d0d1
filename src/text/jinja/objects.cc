#include "text/jinja/objects.h"

#include <fmt/format.h>

#include "text/jinja/interpreter.h"
#include "text/jinja/operators.h"

namespace quire::jinja {

void Scope::set(Symbol symbol, Value value) {
  for (auto& variable : variables) {
    if (variable.first == symbol) {
      variable.second = std::move(value);
      return;
    }
  }
  variables.emplace_back(symbol, std::move(value));
}

Value Callable::attribute(Interpreter&, std::string_view) { return Value(); }

Value MacroObject::call(Interpreter& interpreter, const Arguments& arguments) {
  return interpreter.call_macro(definition_, closure_, arguments);
}

Value MacroObject::attribute(Interpreter& interpreter, std::string_view name) {
  if (name == "name") return Value::borrowed(definition_.name);
  if (name == "arguments") {
    std::vector<Value> names;
    for (const std::string& parameter : definition_.parameter_names) names.push_back(Value::borrowed(parameter));
    return make_list(interpreter.arena(), Kind::kTuple, std::move(names));
  }
  if (name == "caller") return Value::boolean(definition_.uses_caller);
  if (name == "catch_kwargs") return Value::boolean(definition_.uses_kwargs);
  if (name == "catch_varargs") return Value::boolean(definition_.uses_varargs);
  return Value();
}

Value LoopObject::call(Interpreter& interpreter, const Arguments& arguments) {
  if (!node_.recursive) fail("The loop must have the 'recursive' marker to be called recursively.");
  const Parameters parameters("loop", arguments, {"iterable"}, 1);
  return interpreter.call_loop(node_, around_, parameters[0], depth_ + 1);
}

Value LoopObject::attribute(Interpreter& interpreter, std::string_view name) {
  const auto length = static_cast<int64_t>(items().size());
  if (name == "index") return Value::integer(index + 1);
  if (name == "index0") return Value::integer(index);
  if (name == "first") return Value::boolean(index == 0);
  if (name == "last") return Value::boolean(index + 1 == length);
  if (name == "length") return Value::integer(length);
  if (name == "revindex") return Value::integer(length - index);
  if (name == "revindex0") return Value::integer(length - index - 1);
  if (name == "depth") return Value::integer(depth_ + 1);
  if (name == "depth0") return Value::integer(depth_);
  if (name == "previtem") {
    return index > 0 ? items()[static_cast<size_t>(index - 1)]
                     : Value::undefined(Missing::kHint, "there is no previous item");
  }
  if (name == "nextitem") {
    return index + 1 < length ? items()[static_cast<size_t>(index + 1)]
                              : Value::undefined(Missing::kHint, "there is no next item");
  }
  Method method = nullptr;
  if (name == "cycle") method = &LoopObject::cycle;
  if (name == "changed") method = &LoopObject::changed;
  if (!method) return Value();
  Value self = Value::object(Kind::kLoop, this);
  return Value::object(Kind::kMethod, interpreter.arena().make<MethodObject>(std::move(self), method));
}

Value LoopObject::cycle(Interpreter&, const Value& self, const Arguments& arguments) {
  if (arguments.positional.empty()) fail("no items for cycling given");
  return arguments.positional[static_cast<size_t>(self.as<LoopObject>().index) % arguments.positional.size()];
}

Value LoopObject::changed(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  auto& loop = self.as<LoopObject>();
  const std::vector<Value>& now = arguments.positional;
  bool same = loop.has_changed_ && now.size() == loop.last_changed_.size();
  for (size_t i = 0; same && i < now.size(); ++i) same = equal(interpreter.arena(), now[i], loop.last_changed_[i]);
  loop.has_changed_ = true;
  if (!same) loop.last_changed_ = now;
  return Value::boolean(!same);
}

}  // namespace quire::jinja
