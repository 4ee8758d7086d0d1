// Expressions of the interpreter.
#include <fmt/format.h>

#include "text/jinja/depth.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"

namespace quire::jinja {

Value Interpreter::evaluate(const Expression& node) {
  const Depth depth(evaluation_depth_);
  arena_.step();
  switch (node.kind) {
    case ExpressionKind::kConstant:
      return static_cast<const Constant&>(node).value;
    case ExpressionKind::kName:
      return evaluate_name(static_cast<const Name&>(node));
    case ExpressionKind::kSequence:
      return evaluate_sequence(static_cast<const Sequence&>(node));
    case ExpressionKind::kDict:
      return evaluate_dict(static_cast<const DictLiteral&>(node));
    case ExpressionKind::kAttribute: {
      const auto& access = static_cast<const Attribute&>(node);
      const Value object = evaluate(*access.object);
      line_ = node.line;
      return attribute(object, access.name);
    }
    case ExpressionKind::kItem: {
      const auto& access = static_cast<const Item&>(node);
      const Value object = evaluate(*access.object);
      const Value index = evaluate(*access.index);
      line_ = node.line;
      return item(object, index);
    }
    case ExpressionKind::kSlice:
      return evaluate_slice(static_cast<const Slice&>(node));
    case ExpressionKind::kCall:
      return evaluate_call(static_cast<const jinja::Call&>(node));
    case ExpressionKind::kFilter:
      return evaluate_filter(static_cast<const FilterCall&>(node), Value());
    case ExpressionKind::kTest:
      return evaluate_test(static_cast<const TestCall&>(node));
    case ExpressionKind::kUnary:
      return evaluate_unary(static_cast<const Unary&>(node));
    case ExpressionKind::kBinary:
      return evaluate_binary(static_cast<const Binary&>(node));
    case ExpressionKind::kLogic: {
      const auto& logic = static_cast<const Logic&>(node);
      Value left = evaluate(*logic.left);
      return left.truth() == logic.is_and ? evaluate(*logic.right) : left;
    }
    case ExpressionKind::kCompare:
      return evaluate_compare(static_cast<const Compare&>(node));
    case ExpressionKind::kConcat:
      return evaluate_concat(static_cast<const Concat&>(node));
    case ExpressionKind::kConditional:
      return evaluate_conditional(static_cast<const Conditional&>(node));
  }
  return Value();
}

Value Interpreter::evaluate_name(const Name& node) {
  if (const Value* value = scope_->find(node.symbol)) return *value;
  const auto symbol = static_cast<size_t>(node.symbol);
  if (const Function function = template_.globals[symbol]) {
    return Value::object(Kind::kFunction, arena_.make<FunctionObject>(function));
  }
  return Value::undefined(Missing::kName, template_.symbols[symbol]);
}

Value Interpreter::evaluate_sequence(const Sequence& node) {
  std::vector<Value> items;
  items.reserve(node.items.size());
  for (const auto& item : node.items) items.push_back(evaluate(*item));
  return make_list(arena_, node.type, std::move(items));
}

Value Interpreter::evaluate_dict(const DictLiteral& node) {
  Value result;
  DictObject& dict = make_dict(arena_, result);
  for (const auto& [key, value] : node.entries) {
    Value name = evaluate(*key);
    Value content = evaluate(*value);
    line_ = node.line;
    dict.set(std::move(name), std::move(content));
  }
  return result;
}

Value Interpreter::evaluate_slice(const Slice& node) {
  const auto bound = [this](const ExpressionPtr& part) { return part ? evaluate(*part) : Value::none(); };
  const Value object = evaluate(*node.object);
  const Value start = bound(node.start);
  const Value stop = bound(node.stop);
  const Value stride = bound(node.stride);
  line_ = node.line;
  return slice(arena_, object, start, stop, stride);
}

Arguments Interpreter::evaluate_arguments(const CallArguments& node) {
  Arguments arguments;
  arguments.positional.reserve(node.positional.size());
  for (const auto& argument : node.positional) arguments.positional.push_back(evaluate(*argument));
  for (const auto& [name, argument] : node.keyword) {
    arguments.keyword.emplace_back(Value::borrowed(name), evaluate(*argument));
  }
  if (node.star) {
    const Value list = evaluate(*node.star);
    for (Value& item : iterate(arena_, list)) arguments.positional.push_back(std::move(item));
  }
  if (node.double_star) {
    const Value dict = evaluate(*node.double_star);
    if (!dict.is_dict()) fail(fmt::format("argument after ** must be a mapping, not {}", type_name(dict)));
    arena_.step(static_cast<int64_t>(dict.dict().entries.size()));
    for (const auto& [name, value] : dict.dict().entries) {
      if (!name.is_string()) fail("keywords must be strings");
      if (arguments.find_keyword(name.text())) {
        fail(fmt::format("got multiple values for keyword argument '{}'", name.text()));
      }
      arguments.keyword.emplace_back(name, value);
    }
  }
  return arguments;
}

Value Interpreter::evaluate_call(const jinja::Call& node, const Value* caller) {
  const auto arguments_with_caller = [&] {
    Arguments arguments = evaluate_arguments(node.arguments);
    if (caller) arguments.keyword.emplace_back(Value::borrowed("caller"), *caller);
    line_ = node.line;
    return arguments;
  };
  // Methods and global functions are called without a value for the function itself.
  if (node.callee->kind == ExpressionKind::kAttribute) {
    const auto& access = static_cast<const Attribute&>(*node.callee);
    const Value object = evaluate(*access.object);
    line_ = node.line;
    if (const Method method = find_method(object.kind(), access.name)) {
      return method(*this, object, arguments_with_caller());
    }
    const Value function = attribute(object, access.name);
    return call(function, arguments_with_caller());
  }
  if (node.callee->kind == ExpressionKind::kName) {
    const Symbol symbol = static_cast<const Name&>(*node.callee).symbol;
    const Function function = template_.globals[static_cast<size_t>(symbol)];
    if (function && !scope_->find(symbol)) return function(*this, arguments_with_caller());
  }
  const Value function = evaluate(*node.callee);
  return call(function, arguments_with_caller());
}

Value Interpreter::evaluate_filter(const FilterCall& node, const Value& text) {
  const Depth depth(evaluation_depth_);
  Value input = text;
  if (node.input) {
    input = node.input->kind == ExpressionKind::kFilter
                ? evaluate_filter(static_cast<const FilterCall&>(*node.input), text)
                : evaluate(*node.input);
  }
  const Arguments arguments = evaluate_arguments(node.arguments);
  line_ = node.line;
  if (!node.function) fail(no_filter(node.name));
  return node.function(*this, input, arguments);
}

Value Interpreter::evaluate_test(const TestCall& node) {
  const Value input = evaluate(*node.input);
  const Arguments arguments = evaluate_arguments(node.arguments);
  line_ = node.line;
  if (!node.function) fail(fmt::format("No test named '{}'.", node.name));
  return Value::boolean(node.function(*this, input, arguments) != node.negated);
}

Value Interpreter::evaluate_unary(const Unary& node) {
  const Value operand = evaluate(*node.operand);
  line_ = node.line;
  switch (node.op) {
    case Unary::kNot:
      return Value::boolean(!operand.truth());
    case Unary::kNegate:
      return negate(operand);
    case Unary::kPlus:
      return plus(operand);
  }
  return Value();
}

Value Interpreter::evaluate_binary(const Binary& node) {
  const Value left = evaluate(*node.left);
  const Value right = evaluate(*node.right);
  line_ = node.line;
  return apply(arena_, node.op, left, right);
}

Value Interpreter::evaluate_compare(const Compare& node) {
  Value left = evaluate(*node.first);
  for (const auto& [op, operand] : node.rest) {
    Value right = evaluate(*operand);
    line_ = node.line;
    if (!compare(arena_, op, left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Interpreter::evaluate_concat(const Concat& node) {
  std::string text;
  for (const auto& part : node.parts) {
    append_str(text, evaluate(*part));
  }
  return Value::string(arena_, std::move(text));
}

Value Interpreter::evaluate_conditional(const Conditional& node) {
  if (evaluate(*node.condition).truth()) return evaluate(*node.then);
  if (node.otherwise) return evaluate(*node.otherwise);
  return Value::undefined(
      arena_, fmt::format("the inline if-expression on line {} evaluated to false and no else section was defined.",
                          node.line));
}

Value Interpreter::attribute(const Value& object, const Value& name_value) {
  const std::string_view name = name_value.text();
  if (object.is_undefined()) object.fail_undefined();
  if (name.starts_with("__") && name.ends_with("__")) return Value::undefined(Missing::kUnsafe, name_value, &object);
  if (const Method method = find_method(object.kind(), name)) {
    return Value::object(Kind::kMethod, arena_.make<MethodObject>(object, method));
  }
  if (is_mutating_method(object.kind(), name)) return Value::undefined(Missing::kUnsafe, name_value, &object);
  switch (object.kind()) {
    case Kind::kDict:
    case Kind::kNamespace:
      if (const Value* value = object.dict().find(name)) return *value;
      break;
    case Kind::kTuple:  // what groupby gives
      if (object.list().prefix == "group" && (name == "grouper" || name == "list")) {
        return object.items()[name == "grouper" ? 0 : 1];
      }
      break;
    case Kind::kLoop:
    case Kind::kFunction:
    case Kind::kMethod:
      if (Value value = object.as<Callable>().attribute(*this, name); !value.is_undefined()) return value;
      if (object.kind() == Kind::kLoop && (name == "previtem" || name == "nextitem")) {
        return object.as<Callable>().attribute(*this, name);
      }
      break;
    default:
      break;
  }
  return Value::undefined(Missing::kAttribute, name_value, &object);
}

Value Interpreter::item(const Value& object, const Value& index) {
  if (object.is_undefined()) object.fail_undefined();
  if (object.is_dict()) {
    const bool hashable = index.kind() != Kind::kList && index.kind() != Kind::kDict;
    if (const Value* value = hashable ? object.dict().find(index) : nullptr) return *value;
  } else if (index.is_integer()) {
    return item_at(arena_, object, index.as_integer());
  }
  if (index.is_string()) return attribute(object, index);
  std::string hint = fmt::format("{} object has no element ", type_name(object));
  append_repr(hint, index);
  return Value::undefined(arena_, std::move(hint));
}

Value Interpreter::call(const Value& callee, const Arguments& arguments) {
  switch (callee.kind()) {
    case Kind::kLoop:
    case Kind::kFunction:
    case Kind::kMethod:
      return callee.as<Callable>().call(*this, arguments);
    case Kind::kUndefined:
      callee.fail_undefined();
    default:
      fail(fmt::format("'{}' object is not callable", type_name(callee)));
  }
}

Value Interpreter::call_filter(std::string_view name, const Value& input, const Arguments& arguments) {
  const Depth depth(evaluation_depth_);
  arena_.step();
  const Filter filter = find_filter(name);
  if (!filter) fail(no_filter(name));
  return filter(*this, input, arguments);
}

bool Interpreter::call_test(std::string_view name, const Value& input, const Arguments& arguments) {
  const Depth depth(evaluation_depth_);
  arena_.step();
  const Test test = find_test(name);
  if (!test) fail(fmt::format("No test named '{}'.", name));
  return test(*this, input, arguments);
}

}  // namespace quire::jinja
