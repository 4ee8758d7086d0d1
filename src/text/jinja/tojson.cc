#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/jinja/strings.h"

namespace quire::jinja {
namespace {

class JsonWriter {
 public:
  JsonWriter(std::string& out, const JsonStyle& style) : out_(out), style_(style) {}

  void write(const Value& value, int depth) {
    if (depth > kMaxPrintDepth) fail(fmt::format("a value for tojson is nested deeper than {}", kMaxPrintDepth));
    switch (value.kind()) {
      case Kind::kNone:
        out_ += "null";
        break;
      case Kind::kBool:
        out_ += value.truth() ? "true" : "false";
        break;
      case Kind::kInt:
      case Kind::kBigInt:
        append_repr(out_, value);
        break;
      case Kind::kFloat:
        write_real(value.as_real());
        break;
      case Kind::kString:
        write_string(value.text());
        break;
      case Kind::kList:
      case Kind::kTuple:
        write_list(value.items(), depth);
        break;
      case Kind::kDict:
        write_dict(value.dict(), depth);
        break;
      default:
        fail(fmt::format("Object of type {} is not JSON serializable", type_name(value)));
    }
    check_size();
  }

 private:
  void check_size() const {
    if (out_.size() > Arena::kMaxText) fail(fmt::format("a string is longer than {} MiB", Arena::kMaxText >> 20));
  }

  void write_real(double value) {
    if (std::isnan(value)) {
      out_ += "NaN";
    } else if (std::isinf(value)) {
      out_ += value < 0 ? "-Infinity" : "Infinity";
    } else {
      append_real(out_, value);
    }
  }

  void write_escape(uint32_t unit) { fmt::format_to(std::back_inserter(out_), "\\u{:04x}", unit); }

  void write_string(std::string_view text) {
    out_ += '"';
    const char* p = text.data();
    const char* const end = p + text.size();
    while (p < end) {
      const char* const start = p;
      while (p < end && static_cast<uint8_t>(*p) >= 0x20 && static_cast<uint8_t>(*p) < 0x7F && *p != '"' &&
             *p != '\\') {
        ++p;
      }
      out_.append(start, p);
      if (p == end) break;
      check_size();
      const char* const at = p;
      const char32_t code = next_character(p, end);
      switch (code) {
        case '"':
          out_ += "\\\"";
          break;
        case '\\':
          out_ += "\\\\";
          break;
        case '\n':
          out_ += "\\n";
          break;
        case '\r':
          out_ += "\\r";
          break;
        case '\t':
          out_ += "\\t";
          break;
        case '\b':
          out_ += "\\b";
          break;
        case '\f':
          out_ += "\\f";
          break;
        default:
          if (code < 0x20 || (style_.ensure_ascii && code > 0x7F && code < 0x10000)) {
            write_escape(code);
          } else if (style_.ensure_ascii && code >= 0x10000) {
            write_escape(0xD800 + ((code - 0x10000) >> 10));
            write_escape(0xDC00 + ((code - 0x10000) & 0x3FF));
          } else {
            out_.append(at, p);
          }
      }
    }
    out_ += '"';
  }

  void new_line(int depth) {
    if (!style_.pretty) return;
    out_ += '\n';
    for (int i = 0; i < depth; ++i) {
      out_ += style_.indent;
      check_size();
    }
  }

  void write_list(const std::vector<Value>& items, int depth) {
    out_ += '[';
    for (size_t i = 0; i < items.size(); ++i) {
      if (items[i].heap()) items[i].heap()->arena().step();
      if (i > 0) out_ += style_.item_separator;
      new_line(depth + 1);
      write(items[i], depth + 1);
    }
    if (!items.empty()) new_line(depth);
    out_ += ']';
  }

  void write_key(const Value& key) {
    if (key.is_string()) return write_string(key.text());
    if (!key.is_number() && !key.is_none()) {
      fail(fmt::format("keys must be str, int, float, bool or None, not {}", type_name(key)));
    }
    out_ += '"';
    write(key, 0);
    out_ += '"';
  }

  void write_dict(const DictObject& dict, int depth) {
    dict.arena().step(static_cast<int64_t>(dict.entries.size()));
    std::vector<const std::pair<Value, Value>*> order;
    order.reserve(dict.entries.size());
    for (const auto& entry : dict.entries) order.push_back(&entry);
    if (style_.sort_keys) {
      std::stable_sort(order.begin(), order.end(),
                       [&](const auto* a, const auto* b) { return less(dict.arena(), a->first, b->first); });
    }
    out_ += '{';
    for (size_t i = 0; i < order.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      new_line(depth + 1);
      write_key(order[i]->first);
      out_ += style_.key_separator;
      write(order[i]->second, depth + 1);
    }
    if (!order.empty()) new_line(depth);
    out_ += '}';
  }

  std::string& out_;
  const JsonStyle& style_;
};

}  // namespace

void append_json(std::string& out, const Value& value, const JsonStyle& style) {
  JsonWriter(out, style).write(value, 0);
}

}  // namespace quire::jinja
