#pragma once
// What a call passes, and how a built-in function takes it.
#include <array>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace quire::jinja {

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<Value, Value>> keyword;  // names are strings

  const Value* find_keyword(std::string_view name) const;
};

// Binds arguments to the named parameters of a built-in function. Throws Failure for too many, unknown, doubled or
// missing ones and from the getters for a wrong type.
class Parameters {
 public:
  static constexpr size_t kMaxParameters = 6;

  Parameters(std::string_view function, const Arguments& arguments, std::initializer_list<std::string_view> names,
             size_t required = 0);

  bool has(size_t index) const { return values_[index] != nullptr; }
  bool has_value(size_t index) const { return has(index) && !values_[index]->is_none(); }  // given and not none
  const Value& operator[](size_t index) const { return *values_[index]; }                  // if has(index)
  Value get(size_t index, const Value& fallback) const { return has(index) ? *values_[index] : fallback; }
  int64_t integer(size_t index, int64_t fallback) const;  // fallback if absent or none, as in the others
  bool flag(size_t index, bool fallback) const { return has(index) ? values_[index]->truth() : fallback; }
  std::string_view text(size_t index, std::string_view fallback) const;

 private:
  [[noreturn]] void fail_type(size_t index, std::string_view wanted) const;

  std::string_view function_;
  std::array<std::string_view, kMaxParameters> names_{};
  std::array<const Value*, kMaxParameters> values_{};
};

}  // namespace quire::jinja
