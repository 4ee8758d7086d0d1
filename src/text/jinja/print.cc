#include "text/jinja/print.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "text/jinja/strings.h"

namespace quire::jinja {
namespace {

void append_items(std::string& out, const std::vector<Value>& items, int depth);

void check(const std::string& out, int depth) {
  if (depth > kMaxPrintDepth) fail(fmt::format("a value is nested deeper than {}", kMaxPrintDepth));
  if (out.size() > Arena::kMaxText) fail(fmt::format("a string is longer than {} MiB", Arena::kMaxText >> 20));
}

void append_repr_at(std::string& out, const Value& value, int depth) {
  check(out, depth);
  switch (value.kind()) {
    case Kind::kUndefined:
      out += "Undefined";
      return;
    case Kind::kNone:
      out += "None";
      return;
    case Kind::kBool:
      out += value.truth() ? "True" : "False";
      return;
    case Kind::kInt:
      out += fmt::format_int(value.as_integer()).c_str();
      return;
    case Kind::kBigInt:
      out += fmt::format_int(value.as_big_integer()).c_str();
      return;
    case Kind::kFloat:
      append_real(out, value.as_real());
      return;
    case Kind::kString:
      append_quoted(out, value.text());
      return;
    case Kind::kList:
      out += '[';
      append_items(out, value.items(), depth);
      out += ']';
      return;
    case Kind::kTuple:
      out += '(';
      append_items(out, value.items(), depth);
      out += value.items().size() == 1 ? ",)" : ")";
      return;
    case Kind::kView:
      out += value.list().prefix;
      out += "([";
      append_items(out, value.items(), depth);
      out += "])";
      return;
    case Kind::kRange: {
      const ListObject& range = value.list();
      fmt::format_to(std::back_inserter(out), "range({}, {}", range.start, range.stop);
      if (range.stride != 1) fmt::format_to(std::back_inserter(out), ", {}", range.stride);
      out += ')';
      return;
    }
    case Kind::kNamespace:
      out += "<Namespace ";
      [[fallthrough]];
    case Kind::kDict: {
      out += '{';
      bool first = true;
      value.dict().arena().step(static_cast<int64_t>(value.dict().entries.size()));
      for (const auto& [key, item] : value.dict().entries) {
        if (!first) out += ", ";
        first = false;
        append_repr_at(out, key, depth + 1);
        out += ": ";
        append_repr_at(out, item, depth + 1);
      }
      out += value.is_dict() ? "}" : "}>";
      return;
    }
    case Kind::kIterator:
    case Kind::kLoop:
    case Kind::kFunction:
    case Kind::kMethod:
      fmt::format_to(std::back_inserter(out), "<{} object>", type_name(value));
      return;
  }
}

void append_items(std::string& out, const std::vector<Value>& items, int depth) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (items[i].heap()) items[i].heap()->arena().step();
    if (i > 0) out += ", ";
    append_repr_at(out, items[i], depth + 1);
  }
}

}  // namespace

void append_real(std::string& out, double value) {
  if (std::isnan(value)) {
    out += "nan";
    return;
  }
  if (std::signbit(value)) out += '-';
  if (std::isinf(value)) {
    out += "inf";
    return;
  }
  char buffer[32];  // the shortest digits that give the value back, as d.ddde+xx
  const std::to_chars_result end =
      std::to_chars(buffer, buffer + sizeof(buffer), std::fabs(value), std::chars_format::scientific);
  const std::string_view text(buffer, static_cast<size_t>(end.ptr - buffer));
  const size_t e = text.find('e');
  int exponent = 0;
  const std::string_view tail = text.substr(text[e + 1] == '+' ? e + 2 : e + 1);
  std::from_chars(tail.data(), tail.data() + tail.size(), exponent);
  std::string digits(text.substr(0, 1));
  if (e > 2) digits += text.substr(2, e - 2);
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (digits.size() > 1) {
      out += '.';
      out.append(digits, 1, std::string::npos);
    }
    fmt::format_to(std::back_inserter(out), "e{}{:02}", exponent < 0 ? '-' : '+', std::abs(exponent));
  } else if (exponent < 0) {
    out += "0.";
    out.append(static_cast<size_t>(-exponent - 1), '0');
    out += digits;
  } else {
    const size_t whole = static_cast<size_t>(exponent) + 1;
    if (digits.size() <= whole) {
      digits.append(whole - digits.size(), '0');
      digits += '0';
    }
    out.append(digits, 0, whole);
    out += '.';
    out.append(digits, whole, std::string::npos);
  }
}

void append_repr(std::string& out, const Value& value) {
  append_repr_at(out, value, 0);
  check(out, 0);
}

void append_str(std::string& out, const Value& value) {
  if (value.is_string()) {
    out += value.text();
  } else if (!value.is_undefined()) {
    append_repr_at(out, value, 0);
  }
  check(out, 0);
}

std::string to_str(const Value& value) {
  std::string out;
  append_str(out, value);
  return out;
}

Value str_value(Arena& arena, const Value& value) {
  return value.is_string() ? value : Value::string(arena, to_str(value));
}

}  // namespace quire::jinja
