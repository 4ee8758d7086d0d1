#include "text/jinja/value.h"

#include <fmt/format.h>

#include <limits>

#include "text/jinja/operators.h"
#include "text/jinja/print.h"

namespace quire::jinja {

Value Value::boolean(bool value) {
  Value result(Kind::kBool);
  result.payload_.integer = value ? 1 : 0;
  return result;
}

Value Value::integer(int64_t value) {
  Value result(Kind::kInt);
  result.payload_.integer = value;
  return result;
}

Value Value::big_integer(uint64_t value) {
  Value result(Kind::kBigInt);
  result.payload_.integer = static_cast<int64_t>(value);
  return result;
}

Value Value::real(double value) {
  Value result(Kind::kFloat);
  result.payload_.real = value;
  return result;
}

Value Value::borrowed(std::string_view text) {
  if (text.size() > std::numeric_limits<uint32_t>::max()) fail("a string of the input is longer than 4 GiB");
  Value result(Kind::kString);
  result.payload_.text = text.data();
  result.size_ = static_cast<uint32_t>(text.size());
  return result;
}

Value Value::string(Arena& arena, std::string text) {
  if (text.empty()) return borrowed("");
  if (text.size() > Arena::kMaxText) fail(fmt::format("a string is longer than {} MiB", Arena::kMaxText >> 20));
  arena.work(text.size());
  arena.check_room(text.capacity());
  auto* object = arena.make<StringObject>(std::move(text));
  object->charge(object->text.capacity());
  Value result = borrowed(object->text);
  result.owner_ = object;
  object->retain();
  return result;
}

Value Value::object(Kind kind, HeapObject* object) {
  Value result(kind);
  result.owner_ = object;
  object->retain();
  return result;
}

Value Value::undefined(Missing how, std::string_view text) { return undefined(how, borrowed(text), nullptr); }

Value Value::undefined(Missing how, const Value& name, const Value* object) {
  Value result = name;
  result.kind_ = Kind::kUndefined;
  result.tag_ = static_cast<uint8_t>(how);
  if (object) result.type_ = object->kind_;
  return result;
}

Value Value::undefined(Arena& arena, std::string hint) {
  Value result = string(arena, std::move(hint));
  result.kind_ = Kind::kUndefined;
  result.tag_ = static_cast<uint8_t>(Missing::kHint);
  return result;
}

bool Value::truth() const {
  switch (kind_) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return payload_.integer != 0;
    case Kind::kFloat:
      return payload_.real != 0;
    case Kind::kString:
      return size_ != 0;
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView:
    case Kind::kRange:
      return !items().empty();
    case Kind::kDict:
      return !dict().entries.empty();
    default:
      return true;
  }
}

double Value::as_real() const {
  if (kind_ == Kind::kFloat) return payload_.real;
  if (kind_ == Kind::kBigInt) return static_cast<double>(as_big_integer());
  return static_cast<double>(payload_.integer);
}

Value Value::part(std::string_view text) const {
  Value result = borrowed(text);
  result.owner_ = owner_;
  if (owner_) owner_->retain();
  return result;
}

std::string Value::undefined_reason() const {
  switch (static_cast<Missing>(tag_)) {
    case Missing::kName:
      return fmt::format("'{}' is undefined", text());
    case Missing::kAttribute:
      if (type_ == Kind::kNone) return fmt::format("'None' has no attribute '{}'", text());
      return fmt::format("'{} object' has no attribute '{}'", type_name(type_), text());
    case Missing::kUnsafe:
      return fmt::format("access to attribute '{}' of '{}' object is unsafe.", text(), type_name(type_));
    case Missing::kHint:
      break;
  }
  return std::string(size_ ? text() : "the value is undefined");
}

void Value::fail_undefined() const { fail(undefined_reason()); }

bool Value::same_object(const Value& other) const {
  if (kind_ != other.kind_) return false;
  switch (kind_) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kBigInt:
      return payload_.integer == other.payload_.integer;
    case Kind::kFloat:
      return payload_.real == other.payload_.real;
    case Kind::kString:
      return text() == other.text();
    default:
      return owner_ == other.owner_;
  }
}

std::string_view type_name(Kind kind) {
  switch (kind) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
    case Kind::kBigInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kView:
      return "dict view";
    case Kind::kRange:
      return "range";
    case Kind::kIterator:
      return "generator";
    case Kind::kDict:
      return "dict";
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kLoop:
      return "LoopContext";
    case Kind::kFunction:
      return "function";
    case Kind::kMethod:
      return "method";
  }
  return "object";
}

const Value* DictObject::find(std::string_view key) const {
  arena().step(static_cast<int64_t>(entries.size() / 64));
  for (const auto& [name, value] : entries) {
    if (!name.is_string() || name.text().size() != key.size()) continue;
    if (key.size() >= Arena::kBytesPerStep) arena().work(key.size());
    if (name.text() == key) return &value;
  }
  return nullptr;
}

const Value* DictObject::find(const Value& key) const {
  if (key.is_string()) return find(key.text());
  require_hashable(arena(), key);
  arena().step(static_cast<int64_t>(entries.size() / 16));
  for (const auto& [name, value] : entries) {
    if (equal(arena(), name, key)) return &value;
  }
  return nullptr;
}

void DictObject::set(Value key, Value value) {
  if (const Value* present = find(key)) {
    *const_cast<Value*>(present) = std::move(value);
    return;
  }
  append(std::move(key), std::move(value));
}

}  // namespace quire::jinja
