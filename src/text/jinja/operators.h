#pragma once
// Python's operators on values. All throw Failure where Python raises.
#include <cstdint>
#include <vector>

#include "text/jinja/value.h"

namespace quire::jinja {

enum class BinaryOperator : uint8_t { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };
enum class Comparison : uint8_t { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kIn, kNotIn };

Value apply(Arena& arena, BinaryOperator op, const Value& left, const Value& right);
Value negate(const Value& value);
Value plus(const Value& value);
bool compare(Arena& arena, Comparison op, const Value& left, const Value& right);

bool equal(Arena& arena, const Value& left, const Value& right);
bool less(Arena& arena, const Value& left, const Value& right);
bool contains(Arena& arena, const Value& container, const Value& item);
void require_hashable(Arena& arena, const Value& value);

int64_t length(const Value& value);  // len()
// The items that a loop over value sees. An iterator gives what is left of it and is then at its end.
std::vector<Value> iterate(Arena& arena, const Value& value);

// value[index] for anything but a slice and dict keys; undefined if there is no such item.
Value item_at(Arena& arena, const Value& value, int64_t index);
// Bounds are none or integers.
Value slice(Arena& arena, const Value& value, const Value& start, const Value& stop, const Value& stride);

// Bounds of a Python slice or of str.find() over `length` items.
struct SliceBounds {
  int64_t start, stop, stride, count;
};
SliceBounds slice_bounds(int64_t length, const Value& start, const Value& stop, const Value& stride);

Value make_list(Arena& arena, Kind kind, std::vector<Value> items);
DictObject& make_dict(Arena& arena, Value& out);

// Calls visit(item) for what a loop over value sees, until it returns false; takes only what it shows from an iterator.
template <class Visit>
void for_each(Arena& arena, const Value& value, Visit&& visit) {
  if (value.kind() == Kind::kIterator) {
    ListObject& list = value.list();
    while (list.next < list.items.size()) {
      arena.step();
      if (!visit(list.items[list.next++])) return;
    }
    return;
  }
  if (value.holds_items()) {
    for (const Value& item : value.items()) {
      arena.step();
      if (!visit(item)) return;
    }
    return;
  }
  for (const Value& item : iterate(arena, value)) {
    arena.step();
    if (!visit(item)) return;
  }
}

}  // namespace quire::jinja
