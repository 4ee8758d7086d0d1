#include "text/jinja/from_json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "text/jinja/operators.h"

namespace quire::jinja {

Value from_json(Arena& arena, const nlohmann::ordered_json& json, int depth) {
  using Type = nlohmann::ordered_json::value_t;
  if (depth > kMaxInputDepth) fail(fmt::format("the input is nested deeper than {}", kMaxInputDepth));
  switch (json.type()) {
    case Type::null:
    case Type::discarded:
    case Type::binary:
      return Value::none();
    case Type::boolean:
      return Value::boolean(json.get<bool>());
    case Type::number_integer:
      return Value::integer(json.get<int64_t>());
    case Type::number_unsigned: {
      const auto value = json.get<uint64_t>();
      return value <= static_cast<uint64_t>(INT64_MAX) ? Value::integer(static_cast<int64_t>(value))
                                                       : Value::big_integer(value);
    }
    case Type::number_float:
      return Value::real(json.get<double>());
    case Type::string:
      return Value::borrowed(json.get_ref<const std::string&>());
    case Type::array: {
      arena.check_room(json.size() * sizeof(Value));
      std::vector<Value> items;
      items.reserve(json.size());
      for (const auto& item : json) items.push_back(from_json(arena, item, depth + 1));
      return make_list(arena, Kind::kList, std::move(items));
    }
    case Type::object: {
      Value result;
      DictObject& dict = make_dict(arena, result);
      dict.entries.reserve(json.size());
      for (const auto& [key, item] : json.items()) {
        dict.append(Value::borrowed(key), from_json(arena, item, depth + 1));
      }
      return result;
    }
  }
  return Value::none();
}

}  // namespace quire::jinja
