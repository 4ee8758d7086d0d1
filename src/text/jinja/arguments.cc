#include "text/jinja/arguments.h"

#include <fmt/format.h>

#include <algorithm>

namespace quire::jinja {

const Value* Arguments::find_keyword(std::string_view name) const {
  for (const auto& [key, value] : keyword) {
    if (key.text() == name) return &value;
  }
  return nullptr;
}

Parameters::Parameters(std::string_view function, const Arguments& arguments,
                       std::initializer_list<std::string_view> names, size_t required)
    : function_(function) {
  std::copy(names.begin(), names.end(), names_.begin());
  if (arguments.positional.size() > names.size()) {
    fail(
        fmt::format("{}() takes at most {} arguments ({} given)", function, names.size(), arguments.positional.size()));
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = &arguments.positional[i];
  for (const auto& [key, value] : arguments.keyword) {
    const auto name = std::find(names.begin(), names.end(), key.text());
    if (name == names.end()) fail(fmt::format("{}() got an unexpected keyword argument '{}'", function, key.text()));
    const auto index = static_cast<size_t>(name - names.begin());
    if (values_[index]) fail(fmt::format("{}() got multiple values for argument '{}'", function, key.text()));
    values_[index] = &value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (!values_[i]) fail(fmt::format("{}() misses the argument '{}'", function, names.begin()[i]));
  }
}

int64_t Parameters::integer(size_t index, int64_t fallback) const {
  if (!has_value(index)) return fallback;
  if (!values_[index]->is_integer()) fail_type(index, "an integer");
  return values_[index]->as_integer();
}

std::string_view Parameters::text(size_t index, std::string_view fallback) const {
  if (!has_value(index)) return fallback;
  if (!values_[index]->is_string()) fail_type(index, "a string");
  return values_[index]->text();
}

void Parameters::fail_type(size_t index, std::string_view wanted) const {
  if (values_[index]->is_undefined()) values_[index]->fail_undefined();
  fail(fmt::format("{}(): argument '{}' must be {}, not {}", function_, names_[index], wanted,
                   type_name(*values_[index])));
}

}  // namespace quire::jinja
