#pragma once
// JSON as requests bring it: parsed within limits, read field by field with errors that name the field.
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

// The object in `text`. Throws ApiError (400): not JSON, not UTF-8, lone surrogates, not an object, deeper than 64, or
// objects so wide that looking up their keys would take longer than reading them.
nlohmann::ordered_json parse_json_object(std::string_view text);

// The library's destructor allocates, and ends the process where there is no memory. Values that came in a request are
// taken apart first.
struct JsonDeleter {
  JsonDeleter() = default;
  JsonDeleter(std::default_delete<nlohmann::ordered_json>) {}  // NOLINT(google-explicit-constructor): from make_unique
  void operator()(nlohmann::ordered_json* value) const noexcept;
};
using JsonPointer = std::unique_ptr<nlohmann::ordered_json, JsonDeleter>;
JsonPointer keep_json(nlohmann::ordered_json&& value);
// One more message or tool at the end of a list, in the shape of the chat API. Built in place: the library's braces
// make temporaries that have to be destroyed. schema: null if there is none.
void append_message(nlohmann::ordered_json& messages, std::string_view role, const nlohmann::ordered_json& content);
void append_tool(nlohmann::ordered_json& tools, std::string_view name, std::string_view description,
                 const nlohmann::ordered_json* schema);

// Typed access to one object. A field that is absent or null is nullopt or empty; one of another type throws ApiError
// (400) with the field as param.
class FieldReader {
 public:
  explicit FieldReader(const nlohmann::ordered_json& object) : object_(object) {}

  const nlohmann::ordered_json* find(const char* name) const;  // null if absent or null
  bool has_null(const char* name) const;                       // present and null
  std::optional<int64_t> integer(const char* name) const;      // 16 and 16.0; not true, not "16"
  std::optional<int32_t> small_integer(const char* name) const;
  std::optional<double> number(const char* name) const;
  std::optional<bool> boolean(const char* name) const;
  std::optional<std::string> string(const char* name) const;
  std::vector<std::string> strings(const char* name) const;  // a string or a list of them
  std::vector<int32_t> integers(const char* name) const;     // a list that fits 32 bits
  const nlohmann::ordered_json* object(const char* name) const;

 private:
  const nlohmann::ordered_json& object_;
};

// An element of a list as a token id; throws as FieldReader does.
int32_t token_id_of(const nlohmann::ordered_json& value, const char* field);

}  // namespace quire
