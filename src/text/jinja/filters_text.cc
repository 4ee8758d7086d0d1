// Filters that give strings or numbers.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "text/jinja/filters.h"
#include "text/jinja/format.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/jinja/strings.h"

namespace quire::jinja {
namespace {

using std::string_view;

template <std::string (*kConvert)(string_view)>
Value convert(Interpreter& in, const Value& input, const Arguments& arguments) {
  const Parameters none("this filter", arguments, {});
  const Value text = str_value(in.arena(), input);
  in.arena().scan(text.text().size());
  return Value::string(in.arena(), kConvert(text.text()));
}

// Unlike str.title(): a word starts after a space, a bracket or a hyphen only.
std::string title_words(string_view text) {
  std::string out;
  const auto ends_word = [](char32_t code) {
    return is_space(code) || code == '-' || code == '(' || code == '{' || code == '[' || code == '<';
  };
  const char* p = text.data();
  const char* const end = p + text.size();
  while (p < end) {
    const char* const start = p;
    const bool separator = ends_word(next_character(p, end));
    while (p < end) {
      const char* next = p;
      if (ends_word(next_character(next, end)) != separator) break;
      p = next;
    }
    const string_view run(start, static_cast<size_t>(p - start));
    if (separator) {
      out += run;
    } else {
      const string_view first = first_character(run);
      out += to_upper(first);
      out += to_lower(run.substr(first.size()));
    }
  }
  return out;
}

Value filter_trim(Interpreter& in, const Value& input, const Arguments& arguments) {
  const Parameters p("trim", arguments, {"chars"});
  const Value text = str_value(in.arena(), input);
  const string_view characters = p.text(0, "");
  const string_view rest =
      p.has_value(0) ? strip(text.text(), characters, Side::kBoth) : strip(text.text(), Side::kBoth);
  in.arena().scan(text.text().size() - rest.size() + 2 * characters.size());
  return text.part(rest);
}

Value filter_string(Interpreter& in, const Value& input, const Arguments& arguments) {
  const Parameters none("string", arguments, {});
  return str_value(in.arena(), input);
}

Value filter_replace(Interpreter& in, const Value& input, const Arguments& arguments) {
  const Parameters p("replace", arguments, {"old", "new", "count"}, 2);
  const Value text = str_value(in.arena(), input);
  in.arena().work(text.text().size());
  return Value::string(in.arena(), replace(text.text(), to_str(p[0]), to_str(p[1]), p.integer(2, -1)));
}

Value filter_escape(Interpreter& in, const Value& input, const Arguments& arguments) {
  const Parameters none("escape", arguments, {});
  return Value::string(in.arena(), escape_markup(to_str(input)));
}

Value filter_indent(Interpreter& in, const Value& input, const Arguments& arguments) {
  const Parameters p("indent", arguments, {"width", "first", "blank"});
  if (input.is_undefined()) input.fail_undefined();
  if (!input.is_string()) fail(fmt::format("indent needs a string, not {}", type_name(input)));
  std::string indentation;
  if (p.has(0) && p[0].is_string()) {
    indentation = p[0].text();
  } else {
    const int64_t width = p.integer(0, 4);
    if (width > 4096) fail(fmt::format("indent: the width {} is larger than 4096", width));
    indentation.assign(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
  }
  const bool blank = p.flag(2, false);
  in.arena().check_room(input.text().size());
  std::string source(input.text());
  source += '\n';  // so that an empty text is one line, and a line end at the end stays
  std::string out = p.flag(1, false) ? indentation : "";
  bool first = true;
  for (const string_view line : split_lines(source, false)) {
    if (!first) {
      out += '\n';
      if (blank || !line.empty()) out += indentation;
    }
    first = false;
    out += line;
    if (out.size() > Arena::kMaxText) fail("indent: the result is too long");
  }
  return Value::string(in.arena(), std::move(out));
}

Value filter_truncate(Interpreter& in, const Value& input, const Arguments& arguments) {
  const Parameters p("truncate", arguments, {"length", "killwords", "end", "leeway"});
  if (input.is_string()) in.arena().work(input.text().size());
  const string_view end = p.text(2, "...");
  const int64_t wanted = p.integer(0, 255);
  const auto end_length = static_cast<int64_t>(count_characters(end));
  const int64_t leeway = p.integer(3, 5);
  if (wanted < end_length) fail(fmt::format("expected length >= {}, got {}", end_length, wanted));
  if (leeway < 0) fail(fmt::format("expected leeway >= 0, got {}", leeway));
  if (length(input) - leeway <= wanted) return input;
  if (!input.is_string()) fail(fmt::format("truncate needs a string, not {}", type_name(input)));
  string_view kept = input.text().substr(0, byte_offset(input.text(), static_cast<size_t>(wanted - end_length)));
  if (!p.flag(1, false)) kept = kept.substr(0, kept.rfind(' '));
  return Value::string(in.arena(), std::string(kept) + std::string(end));
}

Value filter_wordcount(Interpreter& in, const Value& input, const Arguments& arguments) {
  const Parameters none("wordcount", arguments, {});
  const std::string text = to_str(input);
  in.arena().scan(text.size());
  const char* p = text.data();
  const char* const end = p + text.size();
  int64_t words = 0;
  bool inside = false;
  while (p < end) {
    const bool word = is_word(next_character(p, end));
    if (word && !inside) ++words;
    inside = word;
  }
  return Value::integer(words);
}

Value filter_center(Interpreter& in, const Value& input, const Arguments& arguments) {
  const Parameters p("center", arguments, {"width"});
  Arguments width;
  width.positional.push_back(Value::integer(p.integer(0, 80)));
  return find_method(Kind::kString, "center")(in, str_value(in.arena(), input), width);
}

Value filter_format(Interpreter& in, const Value& input, const Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.keyword.empty()) {
    fail("can't handle positional and keyword arguments at the same time");
  }
  Value values;
  if (arguments.keyword.empty()) {
    values = make_list(in.arena(), Kind::kTuple, arguments.positional);
  } else {
    DictObject& dict = make_dict(in.arena(), values);
    for (const auto& [key, value] : arguments.keyword) dict.set(key, value);
  }
  return format_percent(in.arena(), str_value(in.arena(), input), values);
}

void append_url_quoted(Arena& arena, std::string& out, string_view text, string_view safe) {
  constexpr string_view kHex = "0123456789ABCDEF";
  arena.scan(text.size());
  for (const char c : text) {
    if (out.size() > Arena::kMaxText) fail("urlencode: the result is too long");
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       string_view("_.-~").find(c) != string_view::npos || safe.find(c) != string_view::npos;
    if (plain) {
      out += c;
    } else {
      out += '%';
      out += kHex[static_cast<uint8_t>(c) >> 4];
      out += kHex[static_cast<uint8_t>(c) & 15];
    }
  }
}

Value filter_urlencode(Interpreter& in, const Value& input, const Arguments& arguments) {
  const Parameters none("urlencode", arguments, {});
  std::string out;
  if (!input.is_dict() && !input.holds_items()) {
    append_url_quoted(in.arena(), out, to_str(input), "/");
    return Value::string(in.arena(), std::move(out));
  }
  const auto append_pair = [&](const Value& key, const Value& value) {
    if (!out.empty()) out += '&';
    std::string pair;
    append_url_quoted(in.arena(), pair, to_str(key), " ");
    pair += '=';
    append_url_quoted(in.arena(), pair, to_str(value), " ");
    std::replace(pair.begin(), pair.end(), ' ', '+');
    out += pair;
  };
  if (input.is_dict()) {
    for (const auto& [key, value] : input.dict().entries) append_pair(key, value);
  } else {
    for_each(in.arena(), input, [&](const Value& pair) {
      const std::vector<Value> parts = iterate(in.arena(), pair);
      if (parts.size() != 2) fail("urlencode needs pairs");
      append_pair(parts[0], parts[1]);
      return true;
    });
  }
  return Value::string(in.arena(), std::move(out));
}

Value filter_tojson(Interpreter& in, const Value& input, const Arguments& arguments) {
  const Parameters p("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = p.flag(0, false);
  style.sort_keys = p.flag(3, false);
  if (p.has_value(1)) {
    style.pretty = true;
    style.item_separator = ",";
    if (p[1].is_string()) {
      style.indent = p[1].text();
    } else {
      const int64_t width = p.integer(1, 0);
      if (width > 1024) fail(fmt::format("tojson: the indent {} is larger than 1024", width));
      style.indent.assign(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
    }
  }
  if (p.has_value(2)) {
    const std::vector<Value> separators = iterate(in.arena(), p[2]);
    if (separators.size() != 2 || !separators[0].is_string() || !separators[1].is_string()) {
      fail("tojson: separators must be two strings");
    }
    in.arena().work(separators[0].text().size() + separators[1].text().size());
    style.item_separator = separators[0].text();
    style.key_separator = separators[1].text();
  }
  std::string out;
  append_json(out, input, style);
  return Value::string(in.arena(), std::move(out));
}

Value to_integer(double value) {
  if (std::isnan(value)) fail("cannot convert float NaN to integer");
  if (!(std::fabs(value) < 9.2e18)) fail("the number does not fit in 64 bits");
  return Value::integer(static_cast<int64_t>(value));
}

Value filter_int(Interpreter& in, const Value& input, const Arguments& arguments) {
  const Parameters p("int", arguments, {"default", "base"});
  if (input.is_undefined()) input.fail_undefined();
  if (input.is_integer()) return Value::integer(input.as_integer());
  if (input.kind() == Kind::kBigInt) return input;
  Value fallback = p.get(0, Value::integer(0));
  if (input.kind() == Kind::kFloat) return std::isfinite(input.as_real()) ? to_integer(input.as_real()) : fallback;
  if (!input.is_string()) return fallback;
  in.arena().scan(2 * input.text().size());  // it is read as an integer, then as a real number
  int64_t value = 0;
  switch (parse_integer(input.text(), static_cast<int>(std::clamp<int64_t>(p.integer(1, 10), 0, 36)), value)) {
    case IntegerParse::kOk:
      return Value::integer(value);
    case IntegerParse::kTooLarge:
      fail(fmt::format("the integer {} does not fit in 64 bits", input.text()));
    case IntegerParse::kInvalid:
      break;
  }
  double real = 0;
  if (!parse_real(input.text(), real) || !std::isfinite(real)) return fallback;
  return to_integer(real);
}

Value filter_float(Interpreter& in, const Value& input, const Arguments& arguments) {
  const Parameters p("float", arguments, {"default"});
  if (input.is_undefined()) input.fail_undefined();
  if (input.is_number()) return Value::real(input.as_real());
  double value = 0;
  if (input.is_string()) in.arena().scan(input.text().size());
  if (input.is_string() && parse_real(input.text(), value)) return Value::real(value);
  return p.get(0, Value::real(0));
}

Value filter_abs(Interpreter&, const Value& input, const Arguments& arguments) {
  const Parameters none("abs", arguments, {});
  if (input.kind() == Kind::kFloat) return Value::real(std::fabs(input.as_real()));
  if (input.is_integer()) return input.as_integer() < 0 ? negate(input) : plus(input);
  if (input.is_number()) return input;
  if (input.is_undefined()) input.fail_undefined();
  fail(fmt::format("bad operand type for abs(): '{}'", type_name(input)));
}

// Half to even on the decimal digits of the exact value, as Python's round().
double round_decimal(double value, int64_t digits) {
  if (digits > 300) return value;
  if (digits < -300) return std::copysign(0.0, value);
  if (digits >= 0) {
    double result = value;
    parse_real(fmt::format("{:.{}f}", value, digits), result);
    return result;
  }
  const double unit = std::pow(10.0, static_cast<double>(-digits));
  return std::nearbyint(value / unit) * unit;
}

Value filter_round(Interpreter&, const Value& input, const Arguments& arguments) {
  const Parameters p("round", arguments, {"precision", "method"});
  const int64_t precision = p.integer(0, 0);
  const string_view method = p.text(1, "common");
  if (method != "common" && method != "ceil" && method != "floor") fail("method must be common, ceil or floor");
  if (input.is_undefined()) input.fail_undefined();
  if (!input.is_number()) fail(fmt::format("type {} has no round()", type_name(input)));
  if (method == "common") {
    if (input.kind() == Kind::kFloat) {
      return Value::real(std::isfinite(input.as_real()) ? round_decimal(input.as_real(), precision) : input.as_real());
    }
    if (precision >= 0 || !input.is_integer()) return input.is_integer() ? plus(input) : input;
    return to_integer(round_decimal(input.as_real(), precision));
  }
  const double unit = std::pow(10.0, static_cast<double>(std::clamp<int64_t>(precision, -300, 300)));
  const double scaled = input.as_real() * unit;
  return Value::real((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit);
}

Value filter_length(Interpreter& in, const Value& input, const Arguments& arguments) {
  const Parameters none("length", arguments, {});
  if (input.is_string()) in.arena().work(input.text().size());
  return Value::integer(length(input));
}

constexpr FilterEntry kFilters[] = {
    {"trim", filter_trim},
    {"tojson", filter_tojson},
    {"length", filter_length},
    {"count", filter_length},
    {"upper", convert<to_upper>},
    {"lower", convert<to_lower>},
    {"capitalize", convert<capitalize>},
    {"title", convert<title_words>},
    {"string", filter_string},
    {"safe", filter_string},
    {"replace", filter_replace},
    {"e", filter_escape},
    {"escape", filter_escape},
    {"forceescape", filter_escape},
    {"indent", filter_indent},
    {"truncate", filter_truncate},
    {"wordcount", filter_wordcount},
    {"center", filter_center},
    {"format", filter_format},
    {"urlencode", filter_urlencode},
    {"int", filter_int},
    {"float", filter_float},
    {"abs", filter_abs},
    {"round", filter_round},
};

}  // namespace

std::span<const FilterEntry> text_filters() { return kFilters; }

}  // namespace quire::jinja
