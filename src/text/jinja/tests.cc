// What may stand after "is".
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "text/jinja/builtins.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/jinja/strings.h"

namespace quire::jinja {
namespace {

template <bool (*kPredicate)(const Value&)>
bool plain(Interpreter&, const Value& input, const Arguments& arguments) {
  const Parameters none("this test", arguments, {});
  return kPredicate(input);
}

bool is_defined(const Value& value) { return !value.is_undefined(); }
bool is_undefined(const Value& value) { return value.is_undefined(); }
bool is_none(const Value& value) { return value.is_none(); }
bool is_boolean(const Value& value) { return value.kind() == Kind::kBool; }
bool is_true(const Value& value) { return value.kind() == Kind::kBool && value.truth(); }
bool is_false(const Value& value) { return value.kind() == Kind::kBool && !value.truth(); }
bool is_integer(const Value& value) { return value.kind() == Kind::kInt || value.kind() == Kind::kBigInt; }
bool is_float(const Value& value) { return value.kind() == Kind::kFloat; }
bool is_number(const Value& value) { return value.is_number(); }
bool is_string(const Value& value) { return value.is_string(); }
bool is_mapping(const Value& value) { return value.is_dict(); }
bool is_sequence(const Value& value) {
  return value.is_sequence() || value.is_string() || value.is_dict() || value.is_undefined();
}
bool is_iterable(const Value& value) {
  return value.holds_items() || value.is_string() || value.is_dict() || value.is_undefined() ||
         value.kind() == Kind::kLoop;
}
bool is_callable(const Value& value) {
  return value.kind() == Kind::kLoop || value.kind() == Kind::kFunction || value.kind() == Kind::kMethod ||
         value.is_undefined();
}
bool is_escaped(const Value&) { return false; }

template <bool (*kWanted)(char32_t), bool (*kUnwanted)(char32_t)>
bool has_case(Interpreter& in, const Value& input, const Arguments& arguments) {
  const Parameters none("this test", arguments, {});
  const std::string text = to_str(input);
  in.arena().scan(text.size());
  const char* p = text.data();
  const char* const end = p + text.size();
  bool found = false;
  while (p < end) {
    const char32_t code = next_character(p, end);
    if (kUnwanted(code)) return false;
    found |= kWanted(code);
  }
  return found;
}

bool remainder_is(Interpreter& in, const Value& input, int64_t divisor, int64_t wanted) {
  return equal(in.arena(), apply(in.arena(), BinaryOperator::kModulo, input, Value::integer(divisor)),
               Value::integer(wanted));
}
template <int64_t kRemainder>
bool test_parity(Interpreter& in, const Value& input, const Arguments& arguments) {
  const Parameters none(kRemainder == 1 ? "odd" : "even", arguments, {});
  return remainder_is(in, input, 2, kRemainder);
}

bool test_divisibleby(Interpreter& in, const Value& input, const Arguments& arguments) {
  const Parameters p("divisibleby", arguments, {"num"}, 1);
  return equal(in.arena(), apply(in.arena(), BinaryOperator::kModulo, input, p[0]), Value::integer(0));
}

bool test_sameas(Interpreter&, const Value& input, const Arguments& arguments) {
  const Parameters p("sameas", arguments, {"other"}, 1);
  return input.same_object(p[0]);
}

template <auto kFind>
bool test_name(Interpreter& in, const Value& input, const Arguments& arguments) {
  const Parameters none("this test", arguments, {});
  require_hashable(in.arena(), input);  // names are the keys of a dict
  return input.is_string() && kFind(input.text()) != nullptr;
}

template <Comparison kComparison>
bool test_compare(Interpreter& in, const Value& input, const Arguments& arguments) {
  const Parameters p("this test", arguments, {"other"}, 1);
  return compare(in.arena(), kComparison, input, p[0]);
}

struct Entry {
  std::string_view name;
  Test test;
};

constexpr Entry kTests[] = {
    {"defined", plain<is_defined>},
    {"undefined", plain<is_undefined>},
    {"none", plain<is_none>},
    {"string", plain<is_string>},
    {"mapping", plain<is_mapping>},
    {"iterable", plain<is_iterable>},
    {"sequence", plain<is_sequence>},
    {"number", plain<is_number>},
    {"integer", plain<is_integer>},
    {"float", plain<is_float>},
    {"boolean", plain<is_boolean>},
    {"true", plain<is_true>},
    {"false", plain<is_false>},
    {"callable", plain<is_callable>},
    {"escaped", plain<is_escaped>},
    {"odd", test_parity<1>},
    {"even", test_parity<0>},
    {"divisibleby", test_divisibleby},
    {"lower", has_case<is_lower, is_upper>},
    {"upper", has_case<is_upper, is_lower>},
    {"sameas", test_sameas},
    {"filter", test_name<find_filter>},
    {"test", test_name<find_test>},
    {"in", test_compare<Comparison::kIn>},
    {"==", test_compare<Comparison::kEqual>},
    {"eq", test_compare<Comparison::kEqual>},
    {"equalto", test_compare<Comparison::kEqual>},
    {"!=", test_compare<Comparison::kNotEqual>},
    {"ne", test_compare<Comparison::kNotEqual>},
    {">", test_compare<Comparison::kGreater>},
    {"gt", test_compare<Comparison::kGreater>},
    {"greaterthan", test_compare<Comparison::kGreater>},
    {">=", test_compare<Comparison::kGreaterEqual>},
    {"ge", test_compare<Comparison::kGreaterEqual>},
    {"<", test_compare<Comparison::kLess>},
    {"lt", test_compare<Comparison::kLess>},
    {"lessthan", test_compare<Comparison::kLess>},
    {"<=", test_compare<Comparison::kLessEqual>},
    {"le", test_compare<Comparison::kLessEqual>},
};

}  // namespace

Test find_test(std::string_view name) {
  const auto* const entry =
      std::find_if(std::begin(kTests), std::end(kTests), [&](const Entry& e) { return e.name == name; });
  return entry == std::end(kTests) ? nullptr : entry->test;
}

}  // namespace quire::jinja
