#include "server/json_body.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "server/json_errors.h"

namespace quire {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMaxDepth = 64;
constexpr uint64_t kMaxKeyWork = 20'000'000;  // ordered objects find keys by looking at all of them

ApiError wrong_type(const char* field, const char* wanted, const Json& value) {
  return validation_error(fmt::format("{}: expected {}, got {}", field, wanted, value.type_name()), field);
}

std::optional<int64_t> as_integer(const Json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
    return static_cast<int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_number_float()) {  // 16.0, as languages with one number type write it
    constexpr double kExact = 9007199254740992.0;
    const auto number = value.get<double>();
    if (number >= -kExact && number <= kExact && number == static_cast<double>(static_cast<int64_t>(number))) {
      return static_cast<int64_t>(number);
    }
  }
  return std::nullopt;
}

// No deeper than kMaxDepth.
void take_apart(Json& value) noexcept {
  if (value.is_array()) {
    auto& items = value.get_ref<Json::array_t&>();
    for (Json& item : items) take_apart(item);
    items.clear();
  } else if (value.is_object()) {
    auto& members = value.get_ref<Json::object_t&>();
    for (auto& [key, member] : members) take_apart(member);
    members.clear();
  }
}

}  // namespace

void JsonDeleter::operator()(Json* value) const noexcept {
  take_apart(*value);
  delete value;
}

JsonPointer keep_json(Json&& value) { return std::make_unique<Json>(std::move(value)); }

void append_message(Json& messages, std::string_view role, const Json& content) {
  Json& message = messages.emplace_back(Json::object());
  message["role"] = role;
  message["content"] = content;
}

void append_tool(Json& tools, std::string_view name, std::string_view description, const Json* schema) {
  Json& tool = tools.emplace_back(Json::object());
  tool["type"] = "function";
  Json& function = tool["function"] = Json::object();
  function["name"] = name;
  function["description"] = description;
  if (schema != nullptr) function["parameters"] = *schema;
}

Json parse_json_object(std::string_view text) {
  std::vector<uint64_t> keys;
  uint64_t work = 0;
  const auto check = [&](int depth, Json::parse_event_t event, Json&) {
    switch (event) {
      case Json::parse_event_t::object_start:
      case Json::parse_event_t::array_start:
        if (depth >= kMaxDepth) throw validation_error(fmt::format("JSON is nested deeper than {}", kMaxDepth));
        keys.push_back(0);
        break;
      case Json::parse_event_t::object_end:
      case Json::parse_event_t::array_end:
        if (!keys.empty()) keys.pop_back();
        break;
      case Json::parse_event_t::key:
        work += ++keys.back();
        if (work > kMaxKeyWork) throw validation_error("JSON has too many keys in one object");
        break;
      case Json::parse_event_t::value:
        break;
    }
    return true;
  };
  Json json;
  try {
    json = Json::parse(text.begin(), text.end(), check);
  } catch (const nlohmann::json::exception& error) {
    // The library's text quotes the input, which may not be UTF-8; the byte says enough.
    const auto* parse = dynamic_cast<const nlohmann::json::parse_error*>(&error);
    throw validation_error(parse != nullptr ? fmt::format("the body is not valid JSON (byte {})", parse->byte)
                                            : "the body is not valid JSON");
  }
  if (!json.is_object())
    throw validation_error(fmt::format("the body must be a JSON object, got {}", json.type_name()));
  return json;
}

const Json* FieldReader::find(const char* name) const {
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

bool FieldReader::has_null(const char* name) const {
  const auto found = object_.find(name);
  return found != object_.end() && found->is_null();
}

std::optional<int64_t> FieldReader::integer(const char* name) const {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  const auto number = as_integer(*value);
  if (!number) {
    if (value->is_number()) throw validation_error(fmt::format("{}: expected a 64-bit integer", name), name);
    throw wrong_type(name, "an integer", *value);
  }
  return number;
}

std::optional<int32_t> FieldReader::small_integer(const char* name) const {
  const auto value = integer(name);
  if (!value) return std::nullopt;
  if (*value < std::numeric_limits<int32_t>::min() || *value > std::numeric_limits<int32_t>::max()) {
    throw validation_error(fmt::format("{}: {} is out of range", name, *value), name);
  }
  return static_cast<int32_t>(*value);
}

std::optional<double> FieldReader::number(const char* name) const {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) throw wrong_type(name, "a number", *value);
  return value->get<double>();
}

std::optional<bool> FieldReader::boolean(const char* name) const {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) throw wrong_type(name, "true or false", *value);
  return value->get<bool>();
}

std::optional<std::string> FieldReader::string(const char* name) const {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) throw wrong_type(name, "a string", *value);
  return value->get<std::string>();
}

std::vector<std::string> FieldReader::strings(const char* name) const {
  std::vector<std::string> out;
  const Json* value = find(name);
  if (value == nullptr) return out;
  if (value->is_string()) {
    out.push_back(value->get<std::string>());
    return out;
  }
  if (!value->is_array()) throw wrong_type(name, "a string or a list of strings", *value);
  for (const Json& item : *value) {
    if (!item.is_string()) throw wrong_type(name, "a string or a list of strings", item);
    out.push_back(item.get<std::string>());
  }
  return out;
}

int32_t token_id_of(const Json& value, const char* field) {
  const auto number = as_integer(value);
  if (!number) throw wrong_type(field, "integers", value);
  if (*number < std::numeric_limits<int32_t>::min() || *number > std::numeric_limits<int32_t>::max()) {
    throw invalid_argument(fmt::format("{} contains token id {}, which is out of vocabulary", field, *number), field);
  }
  return static_cast<int32_t>(*number);
}

std::vector<int32_t> FieldReader::integers(const char* name) const {
  std::vector<int32_t> out;
  const Json* value = find(name);
  if (value == nullptr) return out;
  if (!value->is_array()) throw wrong_type(name, "a list of integers", *value);
  out.reserve(value->size());
  for (const Json& item : *value) out.push_back(token_id_of(item, name));
  return out;
}

const Json* FieldReader::object(const char* name) const {
  const Json* value = find(name);
  if (value != nullptr && !value->is_object()) throw wrong_type(name, "an object", *value);
  return value;
}

}  // namespace quire
