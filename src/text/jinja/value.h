#pragma once
// The values of a template: Python's, as far as templates can tell.
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/arena.h"

namespace quire::jinja {

enum class Kind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kBigInt,  // an integer of the input in [2^63, 2^64): to be printed and compared, not calculated with
  kFloat,
  kString,
  kList,
  kTuple,
  kView,      // of a dict: keys, values, items
  kRange,     // materialized; prints as range(..)
  kIterator,  // what lazy filters give: can be walked once, has no length, is always true
  kDict,
  kNamespace,
  kLoop,
  kFunction,  // a global or a macro
  kMethod,    // bound to its object
};

// How a name came to be undefined, for the message if it is used.
enum class Missing : uint8_t {
  kName,       // no such variable
  kAttribute,  // the object has no such attribute
  kUnsafe,     // the sandbox refuses the attribute
  kHint,       // the text says all
};

class Value;
class ListObject;
class DictObject;

class StringObject final : public HeapObject {
 public:
  explicit StringObject(std::string text) : text(std::move(text)) {}
  const std::string text;
};

// 24 bytes; strings are views into the template, the input or a StringObject, so that slices and strips copy nothing.
class Value {
 public:
  Value() : kind_(Kind::kUndefined), tag_(static_cast<uint8_t>(Missing::kHint)) { payload_.text = ""; }
  Value(const Value& other)
      : kind_(other.kind_),
        tag_(other.tag_),
        type_(other.type_),
        size_(other.size_),
        payload_(other.payload_),
        owner_(other.owner_) {
    if (owner_) owner_->retain();
  }
  Value(Value&& other) noexcept
      : kind_(other.kind_),
        tag_(other.tag_),
        type_(other.type_),
        size_(other.size_),
        payload_(other.payload_),
        owner_(std::exchange(other.owner_, nullptr)) {}
  Value& operator=(const Value& other) { return *this = Value(other); }
  Value& operator=(Value&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Value() {
    if (owner_) owner_->release();
  }

  static Value none() { return Value(Kind::kNone); }
  static Value boolean(bool value);
  static Value integer(int64_t value);
  static Value big_integer(uint64_t value);
  static Value real(double value);
  // The text must outlive the rendering. Throws Failure at 4 GiB.
  static Value borrowed(std::string_view text);
  static Value string(Arena& arena, std::string text);  // throws Failure past Arena::kMaxText
  static Value object(Kind kind, HeapObject* object);
  static Value undefined(Missing how, std::string_view text);  // the text must outlive the rendering
  static Value undefined(Missing how, const Value& name, const Value* object);
  static Value undefined(Arena& arena, std::string hint);

  Kind kind() const { return kind_; }
  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  bool is_none() const { return kind_ == Kind::kNone; }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_integer() const { return kind_ == Kind::kInt || kind_ == Kind::kBool; }  // a bool is an int in Python
  bool is_number() const { return kind_ >= Kind::kBool && kind_ <= Kind::kFloat; }
  bool is_sequence() const { return kind_ == Kind::kList || kind_ == Kind::kTuple || kind_ == Kind::kRange; }
  bool holds_items() const { return kind_ >= Kind::kList && kind_ <= Kind::kIterator; }
  bool is_dict() const { return kind_ == Kind::kDict; }

  bool truth() const;
  int64_t as_integer() const { return payload_.integer; }  // of kInt and kBool
  uint64_t as_big_integer() const { return static_cast<uint64_t>(payload_.integer); }
  double as_real() const;                                           // of any number
  std::string_view text() const { return {payload_.text, size_}; }  // of a string
  const std::vector<Value>& items() const;                          // if holds_items()
  ListObject& list() const;
  DictObject& dict() const;
  HeapObject* heap() const { return owner_; }
  template <class T>
  T& as() const {
    return static_cast<T&>(*owner_);
  }

  // A part of this string's text that shares its memory.
  Value part(std::string_view text) const;

  // Throws Failure with the reason why this undefined value is undefined.
  [[noreturn]] void fail_undefined() const;
  std::string undefined_reason() const;

  bool same_object(const Value& other) const;  // Python's `is`

  void swap(Value& other) noexcept {
    std::swap(kind_, other.kind_);
    std::swap(tag_, other.tag_);
    std::swap(type_, other.type_);
    std::swap(size_, other.size_);
    std::swap(payload_, other.payload_);
    std::swap(owner_, other.owner_);
  }

 private:
  explicit Value(Kind kind) : kind_(kind) { payload_.integer = 0; }

  Kind kind_;
  uint8_t tag_ = 0;          // Missing, if undefined
  Kind type_ = Kind::kNone;  // of the object that misses the attribute
  uint32_t size_ = 0;        // of text
  union {
    int64_t integer;
    double real;
    const char* text;
  } payload_;
  HeapObject* owner_ = nullptr;
};

// Python's name of the type ("str", "dict").
std::string_view type_name(Kind kind);
inline std::string_view type_name(const Value& value) { return type_name(value.kind()); }

// Lists, tuples, views, ranges and iterators.
class ListObject final : public HeapObject {
 public:
  void clear() override { items.clear(); }
  void append(Value value) {
    charge(sizeof(Value));
    items.push_back(std::move(value));
  }

  std::vector<Value> items;
  size_t next = 0;                          // of an iterator: the first item that was not taken
  std::string_view prefix;                  // of a view: how it prints ("dict_keys")
  int64_t start = 0, stop = 0, stride = 1;  // of a range
};

class DictObject : public HeapObject {
 public:
  void clear() override { entries.clear(); }
  const Value* find(std::string_view key) const;
  const Value* find(const Value& key) const;  // throws Failure if key cannot be hashed
  void set(Value key, Value value);           // keeps the place of a key that is there
  void append(Value key, Value value) {       // for a key that is new for sure
    charge(2 * sizeof(Value));
    entries.emplace_back(std::move(key), std::move(value));
  }

  std::vector<std::pair<Value, Value>> entries;
};

// Attributes that a template may set.
class NamespaceObject final : public DictObject {};

inline ListObject& Value::list() const { return as<ListObject>(); }
inline DictObject& Value::dict() const { return as<DictObject>(); }
inline const std::vector<Value>& Value::items() const { return list().items; }

}  // namespace quire::jinja
