#include "text/jinja/format.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdio>

#include "base/quote.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/jinja/strings.h"
#include "text/unicode.h"

namespace quire::jinja {
namespace {

constexpr int64_t kMaxWidth = 1 << 16;
constexpr int64_t kMaxPrecision = 1 << 10;

// How one value is laid out; the union of what the two format languages know.
struct Spec {
  std::string fill = " ";
  char align = '\0';  // '<', '>', '^', '='
  char sign = '\0';   // '-', '+', ' '; none: as '-'
  bool alternate = false;
  char grouping = '\0';  // ',' or '_'
  int64_t width = 0;
  int64_t precision = -1;
  char type = '\0';
  bool zero = false;      // numbers are filled behind their sign
  bool is_empty = false;  // nothing at all is asked for
};

void check_size(const std::string& out) {
  if (out.size() > Arena::kMaxText) fail(fmt::format("a string is longer than {} MiB", Arena::kMaxText >> 20));
}

void append_fill(std::string& out, const std::string& fill, int64_t count) {
  for (int64_t i = 0; i < count; ++i) out += fill;
}

// prefix stays in front of the fill when the alignment is '='.
void append_padded(std::string& out, std::string_view prefix, std::string_view body, const Spec& spec, char align) {
  const int64_t missing = spec.width - static_cast<int64_t>(count_characters(prefix) + count_characters(body));
  int64_t before = 0;
  if (missing > 0 && align == '>') before = missing;
  if (missing > 0 && align == '^') before = missing / 2;
  append_fill(out, spec.fill, before);
  out += prefix;
  if (align == '=') append_fill(out, spec.fill, missing);
  out += body;
  if (align == '<' || align == '^') append_fill(out, spec.fill, missing - before);
  check_size(out);
}

std::string digits_of(uint64_t magnitude, char type) {
  switch (type) {
    case 'x':
      return fmt::format("{:x}", magnitude);
    case 'X':
      return fmt::format("{:X}", magnitude);
    case 'o':
      return fmt::format("{:o}", magnitude);
    case 'b':
      return fmt::format("{:b}", magnitude);
    default:
      return fmt::format("{}", magnitude);
  }
}

std::string grouped(std::string_view digits, char separator, size_t every) {
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % every == 0) out += separator;
    out += digits[i];
  }
  return out;
}

std::string sign_text(bool negative, const Spec& spec) {
  if (negative) return "-";
  return spec.sign == '-' || spec.sign == '\0' ? "" : std::string(1, spec.sign);
}

// Zeros that fill the width of grouped digits are grouped too.
void fill_groups(std::string& digits, const Spec& spec, size_t prefix, size_t whole, size_t every) {
  if (spec.fill != "0" || spec.align != '=') return;
  const auto width = static_cast<size_t>(std::max<int64_t>(spec.width - static_cast<int64_t>(prefix), 0));
  while (digits.size() < width) {
    const bool full = (whole + 1) % (every + 1) == 0;
    if (full) {
      digits.insert(0, 1, spec.grouping);
      ++whole;
    }
    digits.insert(0, 1, '0');
    ++whole;
  }
}

void append_digits(std::string& out, bool negative, std::string digits, const Spec& spec) {
  const bool decimal = spec.type == 'd' || spec.type == '\0' || spec.type == 'n';
  if (spec.precision > static_cast<int64_t>(digits.size())) {
    digits.insert(0, static_cast<size_t>(spec.precision) - digits.size(), '0');
  }
  std::string prefix = sign_text(negative, spec);
  if (spec.alternate && !decimal) prefix += {'0', spec.type};
  if (spec.grouping) {
    digits = grouped(digits, spec.grouping, decimal ? 3 : 4);
    fill_groups(digits, spec, prefix.size(), digits.size(), decimal ? 3 : 4);
  }
  append_padded(out, prefix, digits, spec, spec.align ? spec.align : '>');
}

void append_integer(std::string& out, int64_t value, const Spec& spec) {
  const uint64_t magnitude = value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  append_digits(out, value < 0, digits_of(magnitude, spec.type), spec);
}

// The character of a code point.
std::string character_of(const Value& value) {
  const int64_t code = value.as_integer();
  if (code < 0 || code > 0x10FFFF) fail(fmt::format("the character {} is not in range(0x110000)", code));
  if (code >= 0xD800 && code < 0xE000) fail(fmt::format("the character {} is half of a surrogate pair", code));
  std::string text;
  append_utf8(text, static_cast<char32_t>(code));
  return text;
}

// As ascii() prints it.
std::string ascii_repr(const Value& value) {
  std::string text;
  append_repr(text, value);
  std::string out;
  for (const char* p = text.data(); p < text.data() + text.size();) {
    const char32_t code = next_character(p, text.data() + text.size());
    if (code < 0x80) {
      out += static_cast<char>(code);
    } else {
      append_escape(out, code);
    }
    check_size(out);
  }
  return out;
}

// Python's layout of a number without a format type: repr, or %g that keeps ".0".
std::string general(double magnitude, const Spec& spec) {
  if (spec.precision < 0) {
    std::string text;
    append_real(text, magnitude);
    return text;
  }
  const int precision = static_cast<int>(std::max<int64_t>(spec.precision, 1));
  return fmt::format("{:.{}g}", magnitude, precision);
}

void append_float(std::string& out, double value, const Spec& spec) {
  const double magnitude = std::fabs(value);
  const int precision = spec.precision < 0 ? 6 : static_cast<int>(spec.precision);
  const std::string sign = sign_text(std::signbit(value) && !std::isnan(value), spec);
  std::string text;
  const bool is_general = spec.type == 'g' || spec.type == 'G' || spec.type == 'n';
  if (!std::isfinite(value)) {
    text = std::isnan(value) ? "nan" : "inf";
  } else if (is_general && spec.alternate && magnitude == 0) {
    text = "0." + std::string(static_cast<size_t>(std::max(precision, 1)) - 1, '0');  // fmt writes a digit more
  } else {
    const auto with_type = [&](char type, double number, int digits) {
      return fmt::format(fmt::runtime(fmt::format("{{:{}.{}{}}}", spec.alternate ? "#" : "", digits, type)), number);
    };
    switch (spec.type) {
      case 'e':
      case 'E':
      case 'f':
      case 'F':
        text = with_type(spec.type, magnitude, precision);
        break;
      case 'g':
      case 'G':
        text = with_type(spec.type, magnitude, std::max(precision, 1));
        break;
      case 'n':
        text = with_type('g', magnitude, std::max(precision, 1));
        break;
      case '%':
        text = with_type('f', magnitude * 100, precision) + "%";
        break;
      default:
        text = general(magnitude, spec);
    }
  }
  if (spec.grouping) {
    const size_t whole = std::min(text.find_first_not_of("0123456789"), text.size());
    const std::string digits = grouped(text.substr(0, whole), spec.grouping, 3);
    text = digits + text.substr(whole);
    fill_groups(text, spec, sign.size(), digits.size(), 3);
  }
  append_padded(out, sign, text, spec, spec.align ? spec.align : '>');
}

void append_text(std::string& out, std::string_view text, const Spec& spec, char default_align) {
  if (spec.precision >= 0) text = text.substr(0, byte_offset(text, static_cast<size_t>(spec.precision)));
  append_padded(out, {}, text, spec, spec.align ? spec.align : default_align);
}

// The number that digits at `at` spell; moves `at` past them.
int64_t read_number(std::string_view text, size_t& at, int64_t limit, std::string_view what) {
  int64_t value = 0;
  while (at < text.size() && text[at] >= '0' && text[at] <= '9') {
    value = value * 10 + (text[at++] - '0');
    if (value > limit) fail(fmt::format("a format's {} is larger than {}", what, limit));
  }
  return value;
}

// format % values.
class PercentFormatter {
 public:
  PercentFormatter(Arena& arena, std::string_view format, const Value& values)
      : arena_(arena), format_(format), values_(values) {}

  std::string run() {
    std::string out;
    while (at_ < format_.size()) {
      const size_t percent = std::min(format_.find('%', at_), format_.size());
      out += format_.substr(at_, percent - at_);
      at_ = percent;
      if (at_ < format_.size()) append_conversion(out);
      check_size(out);
    }
    const bool all_used =
        values_.kind() != Kind::kTuple ? used_ > 0 || can_be_left_over() : used_ == values_.items().size() || mapped_;
    if (!all_used) fail("not all arguments converted during string formatting");
    return out;
  }

 private:
  // Python lets whatever has items but no conversion asks for pass: in jinja2 that is an undefined value too.
  bool can_be_left_over() const { return values_.is_sequence() || values_.is_dict() || values_.is_undefined(); }

  const Value& take() {
    if (values_.kind() == Kind::kTuple) {
      if (used_ >= values_.items().size()) fail("not enough arguments for format string");
      return values_.items()[used_++];
    }
    if (used_++ > 0) fail("not enough arguments for format string");
    return values_;
  }

  int64_t number_or_star(int64_t limit, std::string_view what) {
    if (at_ >= format_.size() || format_[at_] != '*') return read_number(format_, at_, limit, what);
    ++at_;
    const Value& value = take();
    if (!value.is_integer()) fail("* wants int");
    if (value.as_integer() > limit || value.as_integer() < -limit) {
      fail(fmt::format("a format's {} is larger than {}", what, limit));
    }
    return value.as_integer();
  }

  void append_conversion(std::string& out) {
    ++at_;
    if (at_ < format_.size() && format_[at_] == '%') {
      ++at_;
      out += '%';
      return;
    }
    Spec spec;
    const Value* value = nullptr;
    if (at_ < format_.size() && format_[at_] == '(') {
      const size_t close = format_.find(')', at_);
      if (close == std::string_view::npos) fail("incomplete format key");
      if (!values_.is_dict()) fail("format requires a mapping");
      const std::string_view key = format_.substr(at_ + 1, close - at_ - 1);
      value = values_.dict().find(key);
      if (!value) fail(fmt::format("the format's key '{}' is missing", key));
      mapped_ = true;
      at_ = close + 1;
    }
    bool left = false;
    bool zero = false;
    for (; at_ < format_.size(); ++at_) {
      const char c = format_[at_];
      if (c == '-') {
        left = true;
      } else if (c == '0') {
        zero = true;
      } else if (c == '+') {
        spec.sign = '+';
      } else if (c == ' ') {
        if (spec.sign != '+') spec.sign = ' ';
      } else if (c == '#') {
        spec.alternate = true;
      } else {
        break;
      }
    }
    spec.width = number_or_star(kMaxWidth, "width");
    if (spec.width < 0) {
      left = true;
      spec.width = -spec.width;
    }
    if (at_ < format_.size() && format_[at_] == '.') {
      ++at_;
      spec.precision = std::max<int64_t>(number_or_star(kMaxPrecision, "precision"), 0);
    }
    while (at_ < format_.size() && (format_[at_] == 'l' || format_[at_] == 'h' || format_[at_] == 'L')) ++at_;
    if (at_ >= format_.size()) fail("incomplete format");
    const char type = format_[at_++];
    if (!value) value = &take();
    spec.align = left ? '<' : '>';
    convert(out, *value, type, spec, zero && !left);
  }

  void convert(std::string& out, const Value& value, char type, Spec& spec, bool zero) {
    arena_.step();
    switch (type) {
      case 's': {
        const std::string text = to_str(value);
        arena_.work(text.size());
        return append_text(out, text, spec, '>');
      }
      case 'r': {
        std::string text;
        append_repr(text, value);
        arena_.work(text.size());
        return append_text(out, text, spec, '>');
      }
      case 'a': {
        const std::string text = ascii_repr(value);
        arena_.work(text.size());
        return append_text(out, text, spec, '>');
      }
      case 'c':
        spec.precision = -1;
        if (value.is_integer()) return append_text(out, character_of(value), spec, '>');
        if (!value.is_string() || count_characters(value.text()) != 1) fail("%c requires int or char");
        return append_text(out, value.text(), spec, '>');
      default:
        break;
    }
    if (zero) {
      spec.fill = "0";
      spec.align = '=';
    }
    if (value.is_undefined()) value.fail_undefined();
    const bool integral = std::string_view("diuxXo").find(type) != std::string_view::npos;
    if (!integral && std::string_view("eEfFgG").find(type) == std::string_view::npos) {
      fail("unsupported format character " + quote(std::string_view(&type, 1)));
    }
    if (!value.is_number()) {
      fail(integral ? fmt::format("%{} format: a real number is required, not {}", type, type_name(value))
                    : fmt::format("must be real number, not {}", type_name(value)));
    }
    if (!integral) {
      spec.type = type;
      return append_float(out, value.as_real(), spec);
    }
    spec.type = type == 'i' || type == 'u' ? 'd' : type;
    if (value.is_integer()) return append_integer(out, value.as_integer(), spec);
    if (spec.type != 'd') fail(fmt::format("%{} format: an integer is required, not {}", type, type_name(value)));
    if (value.kind() == Kind::kBigInt) return append_digits(out, false, digits_of(value.as_big_integer(), 'd'), spec);
    const double real = std::trunc(value.as_real());
    if (!std::isfinite(real)) fail("cannot convert an infinite or undefined number to an integer");
    append_digits(out, real < 0, fmt::format("{:.0f}", std::fabs(real)), spec);
  }

  Arena& arena_;
  const std::string_view format_;
  const Value& values_;
  size_t at_ = 0;
  size_t used_ = 0;
  bool mapped_ = false;
};

// str.format().
class BraceFormatter {
 public:
  BraceFormatter(Interpreter& interpreter, const Arguments& arguments)
      : interpreter_(interpreter), arguments_(arguments) {}

  std::string run(std::string_view format, int depth = 0) {
    if (depth > 2) fail("Max string recursion exceeded");
    std::string out;
    for (size_t at = 0; at < format.size();) {
      const char c = format[at];
      const bool doubled = at + 1 < format.size() && format[at + 1] == c;
      if ((c == '{' || c == '}') && doubled) {
        out += c;
        at += 2;
      } else if (c == '}') {
        fail("Single '}' encountered in format string");
      } else if (c == '{') {
        at = append_field(out, format, at + 1, depth);
      } else {
        out += c;
        ++at;
      }
      check_size(out);
    }
    return out;
  }

 private:
  // The field that starts at `at`; gives where it ends.
  size_t append_field(std::string& out, std::string_view format, size_t at, int depth) {
    size_t end = at;
    for (int open = 1; end < format.size(); ++end) {
      if (format[end] == '{') ++open;
      if (format[end] == '}' && --open == 0) break;
    }
    if (end >= format.size()) fail("expected '}' before end of string");
    std::string_view field = format.substr(at, end - at);
    std::string_view spec_text;
    const size_t name_end = std::min(field.find_first_of(":!"), field.size());
    char conversion = '\0';
    std::string_view name = field.substr(0, name_end);
    field = field.substr(name_end);
    if (field.starts_with('!')) {
      if (field.size() < 2) fail("end of string while looking for conversion specifier");
      conversion = field[1];
      field = field.substr(2);
    }
    if (field.starts_with(':')) {
      spec_text = field.substr(1);
    } else if (!field.empty()) {
      fail("expected ':' after conversion specifier");
    }
    Value value = look_up(name);
    if (conversion == 's') {
      value = str_value(interpreter_.arena(), value);
    } else if (conversion == 'r') {
      std::string text;
      append_repr(text, value);
      value = Value::string(interpreter_.arena(), std::move(text));
    } else if (conversion == 'a') {
      value = Value::string(interpreter_.arena(), ascii_repr(value));
    } else if (conversion != '\0') {
      fail(fmt::format("Unknown conversion specifier {}", conversion));
    }
    interpreter_.arena().step();
    append_value(out, value, parse_spec(run(spec_text, depth + 1)));
    return end + 1;
  }

  Value look_up(std::string_view name) {
    const size_t first_end = std::min(name.find_first_of(".["), name.size());
    const std::string_view first = name.substr(0, first_end);
    Value value = first_value(first);
    name = name.substr(first_end);
    while (!name.empty()) {
      if (name[0] == '.') {
        const size_t end = std::min(name.find_first_of(".[", 1), name.size());
        value =
            interpreter_.attribute(value, Value::string(interpreter_.arena(), std::string(name.substr(1, end - 1))));
        name = name.substr(end);
      } else {
        const size_t close = name.find(']');
        if (close == std::string_view::npos) fail("Missing ']' in format string");
        const std::string_view key = name.substr(1, close - 1);
        int64_t index = 0;
        const bool is_index = parse_integer(key, 10, index) == IntegerParse::kOk;
        value = interpreter_.item(
            value, is_index ? Value::integer(index) : Value::string(interpreter_.arena(), std::string(key)));
        name = name.substr(close + 1);
      }
    }
    return value;
  }

  Value first_value(std::string_view name) {
    int64_t index = 0;
    if (name.empty()) {
      index = next_++;
    } else if (parse_integer(name, 10, index) != IntegerParse::kOk) {
      interpreter_.arena().work(arguments_.keyword.size());  // they are searched one by one
      const Value* value = arguments_.find_keyword(name);
      if (!value) fail(fmt::format("the format's key '{}' is missing", name));
      return *value;
    }
    if (index < 0 || index >= static_cast<int64_t>(arguments_.positional.size())) {
      fail("Replacement index out of range for positional args");
    }
    return arguments_.positional[static_cast<size_t>(index)];
  }

  static Spec parse_spec(std::string_view text) {
    Spec spec;
    spec.is_empty = text.empty();
    size_t at = 0;
    bool has_fill = false;
    const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
    if (!text.empty()) {
      const std::string_view fill = first_character(text);
      if (fill.size() < text.size() && is_align(text[fill.size()])) {
        spec.fill = fill;
        has_fill = true;
        at = fill.size();
      }
      if (at < text.size() && is_align(text[at])) spec.align = text[at++];
    }
    if (at < text.size() && (text[at] == '+' || text[at] == '-' || text[at] == ' ')) spec.sign = text[at++];
    if (at < text.size() && text[at] == '#') {
      spec.alternate = true;
      ++at;
    }
    if (at < text.size() && text[at] == '0') {
      if (!has_fill) spec.fill = "0";
      spec.zero = true;
      ++at;
    }
    spec.width = read_number(text, at, kMaxWidth, "width");
    if (at < text.size() && (text[at] == ',' || text[at] == '_')) spec.grouping = text[at++];
    if (at < text.size() && text[at] == '.') {
      ++at;
      spec.precision = read_number(text, at, kMaxPrecision, "precision");
    }
    if (at < text.size()) spec.type = text[at++];
    if (at < text.size()) fail("Invalid format specifier");
    return spec;
  }

  void append_value(std::string& out, const Value& value, Spec spec) {
    if (spec.zero && !spec.align && value.is_number() && spec.type != 'c') spec.align = '=';
    const auto has_type = [&spec](std::string_view types) {
      return spec.type != '\0' && types.find(spec.type) != std::string_view::npos;
    };
    if (spec.is_empty) {
      const std::string text = to_str(value);
      interpreter_.arena().work(text.size());
      return append_text(out, text, spec, '<');
    }
    if (value.is_integer() && (has_type("dxXobn") || spec.type == '\0')) {
      if (spec.precision >= 0) fail("Precision not allowed in integer format specifier");
      if (spec.grouping == ',' && has_type("xXobn")) fail(fmt::format("Cannot specify ',' with '{}'.", spec.type));
      if (spec.grouping && spec.type == 'n') fail("Cannot specify '_' with 'n'.");
      return append_integer(out, value.as_integer(), spec);
    }
    if (value.is_integer() && spec.type == 'c') {
      if (spec.precision >= 0 || spec.grouping || spec.sign != '\0')
        fail("a sign or precision is not allowed with 'c'");
      return append_text(out, character_of(value), spec, '>');
    }
    if (value.is_number() &&
        (has_type("eEfFgG%") || (value.kind() == Kind::kFloat && (!spec.type || spec.type == 'n')))) {
      if (spec.grouping && spec.type == 'n') fail(fmt::format("Cannot specify '{}' with 'n'.", spec.grouping));
      return append_float(out, value.as_real(), spec);
    }
    if (!value.is_string() && value.kind() != Kind::kBigInt) {
      if (value.is_number()) {
        fail(fmt::format("Unknown format code '{}' for object of type '{}'", spec.type, type_name(value)));
      }
      fail(fmt::format("unsupported format string passed to {}.__format__", type_name(value)));
    }
    if (spec.type != '\0' && spec.type != 's') {
      fail(fmt::format("Unknown format code '{}' for object of type '{}'", spec.type, type_name(value)));
    }
    if (spec.sign != '\0' || spec.alternate || spec.grouping || spec.align == '=') {
      fail("Sign, '#', ',' and '=' are not allowed in string format specifier");
    }
    const std::string text = to_str(value);
    interpreter_.arena().work(text.size());
    append_text(out, text, spec, '<');
  }

  Interpreter& interpreter_;
  const Arguments& arguments_;
  int64_t next_ = 0;
};

}  // namespace

Value format_percent(Arena& arena, const Value& format, const Value& values) {
  arena.work(format.text().size());
  return Value::string(arena, PercentFormatter(arena, format.text(), values).run());
}

Value format_braces(Interpreter& interpreter, const Value& format, const Arguments& arguments) {
  interpreter.arena().work(format.text().size());
  return Value::string(interpreter.arena(), BraceFormatter(interpreter, arguments).run(format.text()));
}

}  // namespace quire::jinja
