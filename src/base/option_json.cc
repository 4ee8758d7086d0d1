#include "base/option_json.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "base/error.h"
#include "base/option_table.h"

namespace quire {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMaxDepth = 32;
constexpr int kMaxNodes = 10'000;  // aliases can make a short file a large tree

std::string dump(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

Json read_value(std::string_view text) {
  Json value = Json::parse(text, nullptr, false);
  if (!value.is_discarded()) return value;
  try {
    return parse_human_readable(text, "value");
  } catch (const Error&) {
    return std::string(text);
  }
}

Json from_yaml(const YAML::Node& node, int depth, int& nodes) {
  if (depth > kMaxDepth) throw std::invalid_argument(fmt::format("is nested deeper than {}", kMaxDepth));
  if (++nodes > kMaxNodes) throw std::invalid_argument(fmt::format("has more than {} values", kMaxNodes));
  if (node.IsMap()) {
    Json object = Json::object();
    for (const auto& entry : node) object[entry.first.as<std::string>()] = from_yaml(entry.second, depth + 1, nodes);
    return object;
  }
  if (node.IsSequence()) {
    Json list = Json::array();
    for (const auto& element : node) list.push_back(from_yaml(element, depth + 1, nodes));
    return list;
  }
  if (!node.IsScalar()) return nullptr;
  if (node.Tag() == "!") return node.Scalar();  // quoted
  return read_value(node.Scalar());
}

}  // namespace

std::string json_object_text(std::string_view text) {
  const Json value = Json::parse(text, nullptr, false);
  if (!value.is_object()) throw std::invalid_argument("must be a JSON object");
  return dump(value);
}

std::string json_with_key(std::string_view object, std::string_view path, std::string_view value) {
  Json root = object.empty() ? Json::object() : Json::parse(object, nullptr, false);
  if (!root.is_object()) throw std::invalid_argument("the option holds no JSON object");
  const bool append = path.ends_with('+');
  if (append) path.remove_suffix(1);
  Json* at = &root;
  int depth = 0;
  while (true) {
    const size_t dot = std::min(path.find('.'), path.size());
    const std::string key(path.substr(0, dot));
    if (key.empty() || ++depth > kMaxDepth)
      throw std::invalid_argument("the keys after the option's name are malformed");
    at = &(*at)[key];
    if (dot == path.size()) break;
    path.remove_prefix(dot + 1);
    if (!at->is_object()) *at = Json::object();
  }
  if (!append) {
    *at = read_value(value);
    return dump(root);
  }
  if (!at->is_array()) *at = Json::array();
  while (true) {
    const size_t comma = std::min(value.find(','), value.size());
    at->push_back(read_value(value.substr(0, comma)));
    if (comma == value.size()) return dump(root);
    value.remove_prefix(comma + 1);
  }
}

std::string yaml_to_json(const YAML::Node& node) {
  int nodes = 0;
  return dump(from_yaml(node, 0, nodes));
}

std::string json_text(std::string_view text) { return dump(Json(std::string(text))); }
std::string json_text(const std::vector<std::string>& list) { return dump(Json(list)); }

}  // namespace quire
