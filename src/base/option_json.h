#pragma once
// JSON options: their text, keys that are set one by one, and YAML mappings as JSON. What is wrong is thrown as
// std::invalid_argument, in words that follow "FLAG VALUE: ".
#include <string>
#include <string_view>
#include <vector>

namespace YAML {
class Node;
}

namespace quire {

// `text` made compact; it must be a JSON object.
std::string json_object_text(std::string_view text);

// `object` (JSON text; empty = {}) with the value at `path` ("a.b"; objects on the way are made) set to `value`: JSON,
// else a whole number like 4k, else the text itself. A path that ends in '+' appends the values between value's commas
// to the list there.
std::string json_with_key(std::string_view object, std::string_view path, std::string_view value);

std::string yaml_to_json(const YAML::Node& node);

std::string json_text(std::string_view text);
std::string json_text(const std::vector<std::string>& list);

}  // namespace quire
