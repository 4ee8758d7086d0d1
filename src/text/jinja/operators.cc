#include "text/jinja/operators.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "text/jinja/format.h"
#include "text/jinja/print.h"
#include "text/jinja/strings.h"

namespace quire::jinja {
namespace {

constexpr int kMaxCompareDepth = 64;

[[noreturn]] void fail_overflow(std::string_view sign, int64_t left, int64_t right) {
  fail(fmt::format("{} {} {} does not fit in 64 bits", left, sign, right));
}

std::string_view sign_of(BinaryOperator op) {
  switch (op) {
    case BinaryOperator::kAdd:
      return "+";
    case BinaryOperator::kSubtract:
      return "-";
    case BinaryOperator::kMultiply:
      return "*";
    case BinaryOperator::kDivide:
      return "/";
    case BinaryOperator::kFloorDivide:
      return "//";
    case BinaryOperator::kModulo:
      return "%";
    case BinaryOperator::kPower:
      return "**";
  }
  return "?";
}

[[noreturn]] void fail_operands(BinaryOperator op, const Value& left, const Value& right) {
  if (op == BinaryOperator::kAdd && left.is_string()) {
    fail(fmt::format("can only concatenate str (not \"{}\") to str", type_name(right)));
  }
  fail(
      fmt::format("unsupported operand type(s) for {}: '{}' and '{}'", sign_of(op), type_name(left), type_name(right)));
}

int64_t integer_power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  int64_t factor = base;
  for (int64_t rest = exponent; rest > 0; rest >>= 1) {
    if ((rest & 1) && __builtin_mul_overflow(result, factor, &result)) fail_overflow("**", base, exponent);
    if (rest > 1 && __builtin_mul_overflow(factor, factor, &factor)) fail_overflow("**", base, exponent);
  }
  return result;
}

Value integer_arithmetic(BinaryOperator op, int64_t left, int64_t right) {
  int64_t result = 0;
  switch (op) {
    case BinaryOperator::kAdd:
      if (__builtin_add_overflow(left, right, &result)) fail_overflow("+", left, right);
      return Value::integer(result);
    case BinaryOperator::kSubtract:
      if (__builtin_sub_overflow(left, right, &result)) fail_overflow("-", left, right);
      return Value::integer(result);
    case BinaryOperator::kMultiply:
      if (__builtin_mul_overflow(left, right, &result)) fail_overflow("*", left, right);
      return Value::integer(result);
    case BinaryOperator::kDivide:
      if (right == 0) fail("division by zero");
      return Value::real(static_cast<double>(left) / static_cast<double>(right));
    case BinaryOperator::kFloorDivide:
      if (right == 0) fail("integer division or modulo by zero");
      if (right == -1) return integer_arithmetic(BinaryOperator::kSubtract, 0, left);
      result = left / right;
      return Value::integer(left % right != 0 && (left < 0) != (right < 0) ? result - 1 : result);
    case BinaryOperator::kModulo:
      if (right == 0) fail("integer division or modulo by zero");
      if (right == -1) return Value::integer(0);
      result = left % right;
      return Value::integer(result != 0 && (result < 0) != (right < 0) ? result + right : result);
    case BinaryOperator::kPower:
      if (right >= 0) return Value::integer(integer_power(left, right));
      if (left == 0) fail("0.0 cannot be raised to a negative power");
      return Value::real(std::pow(static_cast<double>(left), static_cast<double>(right)));
  }
  return {};
}

Value real_arithmetic(BinaryOperator op, double left, double right) {
  switch (op) {
    case BinaryOperator::kAdd:
      return Value::real(left + right);
    case BinaryOperator::kSubtract:
      return Value::real(left - right);
    case BinaryOperator::kMultiply:
      return Value::real(left * right);
    case BinaryOperator::kDivide:
      if (right == 0) fail("float division by zero");
      return Value::real(left / right);
    case BinaryOperator::kFloorDivide:
    case BinaryOperator::kModulo: {
      if (right == 0) fail(op == BinaryOperator::kModulo ? "float modulo" : "float floor division by zero");
      double rest = std::fmod(left, right);
      double quotient = (left - rest) / right;
      if (rest != 0) {
        if ((right < 0) != (rest < 0)) {
          rest += right;
          quotient -= 1;
        }
      } else {
        rest = std::copysign(0.0, right);
      }
      if (op == BinaryOperator::kModulo) return Value::real(rest);
      if (quotient == 0) return Value::real(std::copysign(0.0, left / right));
      const double floor = std::floor(quotient);
      return Value::real(quotient - floor > 0.5 ? floor + 1 : floor);
    }
    case BinaryOperator::kPower: {
      if (left == 0 && right < 0) fail("0.0 cannot be raised to a negative power");
      const double result = std::pow(left, right);
      if (std::isnan(result) && !std::isnan(left) && !std::isnan(right)) fail("the power is a complex number");
      if (std::isinf(result) && std::isfinite(left) && std::isfinite(right)) fail("the power is too large");
      return Value::real(result);
    }
  }
  return {};
}

Value repeat(Arena& arena, const Value& value, int64_t count) {
  const auto times = static_cast<size_t>(std::max<int64_t>(count, 0));
  if (value.is_string()) {
    const std::string_view text = value.text();
    if (times == 0 || text.empty()) return Value::borrowed("");
    if (times > Arena::kMaxText / text.size())
      fail(fmt::format("a string is longer than {} MiB", Arena::kMaxText >> 20));
    arena.check_room(times * text.size());
    std::string out;
    out.reserve(times * text.size());
    for (size_t i = 0; i < times; ++i) out += text;
    return Value::string(arena, std::move(out));
  }
  const std::vector<Value>& items = value.items();
  std::vector<Value> out;
  if (times > 0 && !items.empty()) {
    if (times > Arena::kMaxBytes / sizeof(Value) / items.size()) arena.check_room(SIZE_MAX);
    arena.check_room(times * items.size() * sizeof(Value));
    arena.step(static_cast<int64_t>(times * items.size() / 16));
    out.reserve(times * items.size());
    for (size_t i = 0; i < times; ++i) out.insert(out.end(), items.begin(), items.end());
  }
  return make_list(arena, value.kind(), std::move(out));
}

bool is_list_or_tuple(const Value& value) { return value.kind() == Kind::kList || value.kind() == Kind::kTuple; }

Value add(Arena& arena, const Value& left, const Value& right) {
  if (left.is_string() && right.is_string()) {
    if (right.text().empty()) return left;
    if (left.text().empty()) return right;
    std::string out;
    out.reserve(left.text().size() + right.text().size());
    out += left.text();
    out += right.text();
    return Value::string(arena, std::move(out));
  }
  if (is_list_or_tuple(left) && left.kind() == right.kind()) {
    const size_t count = left.items().size() + right.items().size();
    arena.step(static_cast<int64_t>(count / 16));
    arena.check_room(count * sizeof(Value));
    std::vector<Value> out;
    out.reserve(count);
    out.insert(out.end(), left.items().begin(), left.items().end());
    out.insert(out.end(), right.items().begin(), right.items().end());
    return make_list(arena, left.kind(), std::move(out));
  }
  fail_operands(BinaryOperator::kAdd, left, right);
}

bool equal_items(Arena& arena, const std::vector<Value>& left, const std::vector<Value>& right, int depth);

bool equal_at(Arena& arena, const Value& left, const Value& right, int depth) {
  if (depth > kMaxCompareDepth) fail(fmt::format("values are nested deeper than {}", kMaxCompareDepth));
  if (left.is_number() && right.is_number()) {
    if (left.kind() == Kind::kBigInt || right.kind() == Kind::kBigInt) {
      return left.kind() == right.kind()
                 ? left.as_big_integer() == right.as_big_integer()
                 : left.as_real() == right.as_real() && (left.kind() == Kind::kFloat || right.kind() == Kind::kFloat);
    }
    if (left.is_integer() && right.is_integer()) return left.as_integer() == right.as_integer();
    return left.as_real() == right.as_real();
  }
  if (left.kind() != right.kind()) return false;
  switch (left.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      if (left.text().size() != right.text().size()) return false;
      arena.work(left.text().size());
      return left.text() == right.text();
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kRange:
      return equal_items(arena, left.items(), right.items(), depth + 1);
    case Kind::kDict: {
      const auto& entries = left.dict().entries;
      if (entries.size() != right.dict().entries.size()) return false;
      arena.step(static_cast<int64_t>(entries.size()));
      return std::all_of(entries.begin(), entries.end(), [&](const auto& entry) {
        const Value* other = right.dict().find(entry.first);
        return other && equal_at(arena, entry.second, *other, depth + 1);
      });
    }
    default:
      return left.same_object(right);
  }
}

bool equal_items(Arena& arena, const std::vector<Value>& left, const std::vector<Value>& right, int depth) {
  if (left.size() != right.size()) return false;
  for (size_t i = 0; i < left.size(); ++i) {
    arena.step();
    if (!equal_at(arena, left[i], right[i], depth)) return false;
  }
  return true;
}

bool less_at(Arena& arena, const Value& left, const Value& right, int depth) {
  if (depth > kMaxCompareDepth) fail(fmt::format("values are nested deeper than {}", kMaxCompareDepth));
  if (left.is_number() && right.is_number()) {
    if (left.is_integer() && right.is_integer()) return left.as_integer() < right.as_integer();
    if (left.kind() == Kind::kBigInt && right.kind() == Kind::kBigInt) {
      return left.as_big_integer() < right.as_big_integer();
    }
    return left.as_real() < right.as_real();
  }
  if (left.is_string() && right.is_string()) {
    arena.work(std::min(left.text().size(), right.text().size()));
    return left.text() < right.text();  // UTF-8 sorts as code points do
  }
  if (is_list_or_tuple(left) && left.kind() == right.kind()) {
    const auto& a = left.items();
    const auto& b = right.items();
    for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
      arena.step();
      if (!equal_at(arena, a[i], b[i], depth + 1)) return less_at(arena, a[i], b[i], depth + 1);
    }
    return a.size() < b.size();
  }
  if (left.is_undefined()) left.fail_undefined();
  if (right.is_undefined()) right.fail_undefined();
  fail(fmt::format("'<' not supported between instances of '{}' and '{}'", type_name(left), type_name(right)));
}

int64_t clamp_bound(const Value& bound, int64_t length, int64_t low, int64_t high, int64_t fallback) {
  if (bound.is_none()) return fallback;
  if (bound.is_undefined()) bound.fail_undefined();
  if (!bound.is_integer()) fail("slice indices must be integers or None");
  int64_t at = bound.as_integer();
  if (at < 0) at += length;
  return std::clamp(at, low, high);
}

}  // namespace

Value apply(Arena& arena, BinaryOperator op, const Value& left, const Value& right) {
  if (left.is_integer() && right.is_integer()) return integer_arithmetic(op, left.as_integer(), right.as_integer());
  if (left.is_undefined()) left.fail_undefined();
  if (op == BinaryOperator::kModulo && left.is_string()) return format_percent(arena, left, right);
  if (right.is_undefined()) right.fail_undefined();
  if (left.is_number() && right.is_number()) {
    const bool reals = left.kind() == Kind::kFloat || right.kind() == Kind::kFloat;
    if (!reals && op != BinaryOperator::kDivide) fail("integers beyond 64 bits cannot be calculated with");
    return real_arithmetic(op, left.as_real(), right.as_real());
  }
  if (op == BinaryOperator::kAdd) return add(arena, left, right);
  if (op == BinaryOperator::kMultiply) {
    const auto repeatable = [](const Value& value) { return value.is_string() || is_list_or_tuple(value); };
    if (repeatable(left) && right.is_integer()) return repeat(arena, left, right.as_integer());
    if (repeatable(right) && left.is_integer()) return repeat(arena, right, left.as_integer());
  }
  fail_operands(op, left, right);
}

Value negate(const Value& value) {
  if (value.is_integer()) return integer_arithmetic(BinaryOperator::kSubtract, 0, value.as_integer());
  if (value.kind() == Kind::kFloat) return Value::real(-value.as_real());
  if (value.is_undefined()) value.fail_undefined();
  fail(fmt::format("bad operand type for unary -: '{}'", type_name(value)));
}

Value plus(const Value& value) {
  if (value.is_integer()) return Value::integer(value.as_integer());
  if (value.is_number()) return value;
  if (value.is_undefined()) value.fail_undefined();
  fail(fmt::format("bad operand type for unary +: '{}'", type_name(value)));
}

bool equal(Arena& arena, const Value& left, const Value& right) { return equal_at(arena, left, right, 0); }

bool less(Arena& arena, const Value& left, const Value& right) { return less_at(arena, left, right, 0); }

bool compare(Arena& arena, Comparison op, const Value& left, const Value& right) {
  if (op != Comparison::kIn && op != Comparison::kNotIn && left.is_number() && right.is_number() &&
      (std::isnan(left.as_real()) || std::isnan(right.as_real()))) {
    return op == Comparison::kNotEqual;
  }
  switch (op) {
    case Comparison::kEqual:
      return equal(arena, left, right);
    case Comparison::kNotEqual:
      return !equal(arena, left, right);
    case Comparison::kLess:
      return less(arena, left, right);
    case Comparison::kGreater:
      return less(arena, right, left);
    case Comparison::kLessEqual:
      return !less(arena, right, left);
    case Comparison::kGreaterEqual:
      return !less(arena, left, right);
    case Comparison::kIn:
      return contains(arena, right, left);
    case Comparison::kNotIn:
      return !contains(arena, right, left);
  }
  return false;
}

bool contains(Arena& arena, const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::kUndefined:
      return false;
    case Kind::kString:
      if (!item.is_string()) {
        fail(fmt::format("'in <string>' requires string as left operand, not {}", type_name(item)));
      }
      arena.work(container.text().size());
      return find(container.text(), item.text()) != std::string_view::npos;
    case Kind::kDict:
      return container.dict().find(item) != nullptr;
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView:
    case Kind::kRange:
    case Kind::kIterator: {
      bool found = false;
      for_each(arena, container, [&](const Value& candidate) {
        found = candidate.same_object(item) || equal(arena, candidate, item);
        return !found;
      });
      return found;
    }
    default:
      fail(fmt::format("argument of type '{}' is not iterable", type_name(container)));
  }
}

void require_hashable(Arena& arena, const Value& value) {
  if (value.kind() == Kind::kList || value.kind() == Kind::kDict || value.kind() == Kind::kView) {
    fail(fmt::format("unhashable type: '{}'", type_name(value)));
  }
  if (value.kind() == Kind::kTuple) {
    arena.step(static_cast<int64_t>(value.items().size() / 16));
    for (const Value& item : value.items()) {
      if (item.kind() == Kind::kTuple) fail("a tuple inside of a tuple cannot be a key");
      require_hashable(arena, item);
    }
  }
}

int64_t length(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      return static_cast<int64_t>(count_characters(value.text()));
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView:
    case Kind::kRange:
      return static_cast<int64_t>(value.items().size());
    case Kind::kDict:
      return static_cast<int64_t>(value.dict().entries.size());
    default:
      fail(fmt::format("object of type '{}' has no len()", type_name(value)));
  }
}

std::vector<Value> iterate(Arena& arena, const Value& value) {
  std::vector<Value> out;
  switch (value.kind()) {
    case Kind::kUndefined:
      break;
    case Kind::kString: {
      const std::string_view text = value.text();
      arena.work(text.size());
      const size_t count = count_characters(text);
      arena.check_room(count * sizeof(Value));
      arena.step(static_cast<int64_t>(count / 16));
      out.reserve(count);
      for (size_t done = 0; done < text.size();) {
        const std::string_view character = first_character(text.substr(done));
        out.push_back(value.part(character));
        done += character.size();
      }
      break;
    }
    case Kind::kDict:
      arena.check_room(value.dict().entries.size() * sizeof(Value));
      out.reserve(value.dict().entries.size());
      for (const auto& entry : value.dict().entries) out.push_back(entry.first);
      break;
    case Kind::kIterator: {
      ListObject& list = value.list();
      out.assign(list.items.begin() + static_cast<std::ptrdiff_t>(list.next), list.items.end());
      list.next = list.items.size();
      break;
    }
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView:
    case Kind::kRange:
      arena.check_room(value.items().size() * sizeof(Value));
      out = value.items();
      break;
    default:
      fail(fmt::format("'{}' object is not iterable", type_name(value)));
  }
  arena.step(static_cast<int64_t>(out.size() / 16));
  return out;
}

Value item_at(Arena& arena, const Value& value, int64_t index) {
  const auto missing = [&arena, &value, asked = index] {
    return Value::undefined(arena, fmt::format("{} object has no element {}", type_name(value), asked));
  };
  if (value.is_sequence()) {
    const auto& items = value.items();
    if (index < 0) index += static_cast<int64_t>(items.size());
    if (index < 0 || index >= static_cast<int64_t>(items.size())) return missing();
    return items[static_cast<size_t>(index)];
  }
  if (value.is_string()) {
    const std::string_view text = value.text();
    arena.work(text.size());
    if (index < 0) index += static_cast<int64_t>(count_characters(text));
    if (index < 0) return missing();
    const size_t at = byte_offset(text, static_cast<size_t>(index));
    if (at >= text.size()) return missing();
    return value.part(first_character(text.substr(at)));
  }
  return missing();
}

SliceBounds slice_bounds(int64_t length, const Value& start, const Value& stop, const Value& stride) {
  SliceBounds bounds{0, 0, 1, 0};
  if (stride.is_undefined()) stride.fail_undefined();
  if (!stride.is_none()) {
    if (!stride.is_integer()) fail("slice indices must be integers or None");
    bounds.stride = stride.as_integer();
    if (bounds.stride == 0) fail("slice step cannot be zero");
  }
  if (bounds.stride > 0) {
    bounds.start = clamp_bound(start, length, 0, length, 0);
    bounds.stop = clamp_bound(stop, length, 0, length, length);
    if (bounds.stop > bounds.start) bounds.count = (bounds.stop - bounds.start - 1) / bounds.stride + 1;
  } else {
    bounds.stride = std::max(bounds.stride, -INT64_MAX);
    bounds.start = clamp_bound(start, length, -1, length - 1, length - 1);
    bounds.stop = clamp_bound(stop, length, -1, length - 1, -1);
    if (bounds.start > bounds.stop) bounds.count = (bounds.start - bounds.stop - 1) / -bounds.stride + 1;
  }
  return bounds;
}

Value slice(Arena& arena, const Value& value, const Value& start, const Value& stop, const Value& stride) {
  if (value.is_string()) {
    const std::string_view text = value.text();
    arena.work(text.size());
    const auto characters = static_cast<int64_t>(count_characters(text));
    const SliceBounds bounds = slice_bounds(characters, start, stop, stride);
    if (bounds.count == 0) return Value::borrowed("");
    const bool ascii = characters == static_cast<int64_t>(text.size());
    if (bounds.stride == 1) {
      const auto first = static_cast<size_t>(bounds.start);
      const auto count = static_cast<size_t>(bounds.count);
      if (ascii) return value.part(text.substr(first, count));
      const std::string_view rest = text.substr(byte_offset(text, first));
      return value.part(rest.substr(0, byte_offset(rest, count)));
    }
    std::string out;
    if (ascii) {
      for (int64_t i = 0; i < bounds.count; ++i) out += text[static_cast<size_t>(bounds.start + i * bounds.stride)];
    } else {
      arena.step(characters / 16);
      std::vector<std::string_view> all;
      arena.check_room(static_cast<size_t>(characters) * sizeof(std::string_view));
      all.reserve(static_cast<size_t>(characters));
      for (size_t done = 0; done < text.size(); done += all.back().size()) {
        all.push_back(first_character(text.substr(done)));
      }
      for (int64_t i = 0; i < bounds.count; ++i) {
        const auto at = static_cast<size_t>(bounds.start + i * bounds.stride);
        if (at < all.size()) out += all[at];
      }
    }
    return Value::string(arena, std::move(out));
  }
  if (value.is_undefined()) value.fail_undefined();
  if (!value.is_sequence()) fail(fmt::format("'{}' object is not subscriptable", type_name(value)));
  const auto& items = value.items();
  const SliceBounds bounds = slice_bounds(static_cast<int64_t>(items.size()), start, stop, stride);
  arena.step(bounds.count / 16);
  arena.check_room(static_cast<size_t>(bounds.count) * sizeof(Value));
  std::vector<Value> out;
  out.reserve(static_cast<size_t>(bounds.count));
  for (int64_t i = 0; i < bounds.count; ++i) {
    out.push_back(items[static_cast<size_t>(bounds.start + i * bounds.stride)]);
  }
  const Kind kind = value.kind();
  Value result = make_list(arena, kind, std::move(out));
  if (kind == Kind::kRange) {  // a part of a range is one
    const ListObject& of = value.list();
    ListObject& part = result.list();
    const auto bound = [&of](int64_t index) {
      return static_cast<int64_t>(static_cast<uint64_t>(of.start) +
                                  static_cast<uint64_t>(index) * static_cast<uint64_t>(of.stride));
    };
    part.start = bound(bounds.start);
    part.stop = bound(bounds.stop);
    part.stride = static_cast<int64_t>(static_cast<uint64_t>(bounds.stride) * static_cast<uint64_t>(of.stride));
  }
  return result;
}

Value make_list(Arena& arena, Kind kind, std::vector<Value> items) {
  auto* list = arena.make<ListObject>();
  Value result = Value::object(kind, list);
  list->charge(items.capacity() * sizeof(Value));
  list->items = std::move(items);
  return result;
}

DictObject& make_dict(Arena& arena, Value& out) {
  auto* dict = arena.make<DictObject>();
  out = Value::object(Kind::kDict, dict);
  return *dict;
}

}  // namespace quire::jinja
