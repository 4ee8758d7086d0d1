#include <nlohmann/json.hpp>

#include "server/openapi.h"

namespace quire {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMaxDepth = 8;  // of references between schemas

constexpr std::string_view kHead = R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>quire</title><style>
body{font:15px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em;color:#222}
h2{border-bottom:1px solid #ccc;margin-top:2em;font-size:1.1em}
b{display:inline-block;min-width:3.5em}code{font-size:.95em}
table{border-collapse:collapse;margin:.5em 0 .5em 1em}td{padding:.15em 1em .15em 0;vertical-align:top}
.type{color:#666}summary{cursor:pointer}
</style></head><body><h1>quire</h1>
<p>The routes of this server; <a href="openapi.json">openapi.json</a> describes them for programs.</p>
)";

std::string escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string text_of(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

class Page {
 public:
  explicit Page(const Json& description) : description_(description), out_(kHead) {}

  std::string make() {
    for (const auto& [path, methods] : description_.at("paths").items()) {
      for (const auto& [method, operation] : methods.items()) add_operation(path, method, operation);
    }
    return out_ + "</body></html>\n";
  }

 private:
  // What a schema is, behind a reference.
  const Json& resolve(const Json& schema) const {
    const std::string reference = text_of(schema, "$ref");
    return reference.empty() ? schema : description_.at(Json::json_pointer(reference.substr(1)));
  }

  std::string type_of(const Json& schema) const {
    const Json& s = resolve(schema);
    if (const auto type = s.find("type"); type != s.end()) {
      if (type->is_string()) return type->get<std::string>();
      return type->at(0).get<std::string>();
    }
    std::string out;
    if (const auto any = s.find("anyOf"); any != s.end()) {
      for (const Json& one : *any) {
        const std::string name = type_of(one);
        if (name.empty() || name == "null" || out.find(name) != std::string::npos) continue;
        out += (out.empty() ? "" : " or ") + name;
      }
    }
    return out;
  }

  void add_fields(const Json& schema, int depth) {
    if (depth > kMaxDepth) return;
    const Json& s = resolve(schema);
    for (const char* several : {"allOf", "anyOf"}) {
      if (const auto list = s.find(several); list != s.end()) {
        for (const Json& one : *list) add_fields(one, depth + 1);
      }
    }
    const auto properties = s.find("properties");
    if (properties == s.end()) return;
    const Json required = s.value("required", Json::array());
    for (const auto& [name, field] : properties->items()) {
      const Json& f = resolve(field);
      std::string text = escape(text_of(f, "description"));
      if (const auto standard = f.find("default"); standard != f.end()) {
        text += (text.empty() ? "default " : "; default ") + escape(standard->dump());
      }
      const bool needed = std::find(required.begin(), required.end(), name) != required.end();
      out_ += "<tr><td><code>" + escape(name) + "</code>" + (needed ? " *" : "") + "</td><td class=\"type\">" +
              escape(type_of(field)) + "</td><td>" + text + "</td></tr>\n";
    }
  }

  void add_operation(const std::string& path, const std::string& method, const Json& operation) {
    out_ += "<h2><b>";
    for (const char c : method) out_ += static_cast<char>(c - 32);  // lower-case letters
    out_ += "</b> <code>" + escape(path) + "</code></h2>\n<p>" + escape(text_of(operation, "summary")) + "</p>\n";
    const auto body = operation.find("requestBody");
    if (body == operation.end()) return;
    out_ += "<details><summary>Fields of the request (* needed)</summary><table>\n";
    add_fields(body->at("content").at("application/json").at("schema"), 0);
    out_ += "</table></details>\n";
  }

  const Json& description_;
  std::string out_;
};

}  // namespace

std::string docs_page(const Json& description) { return Page(description).make(); }

}  // namespace quire
