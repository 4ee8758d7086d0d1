// Methods of strings, lists, tuples and dicts.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>

#include "text/jinja/builtins.h"
#include "text/jinja/format.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/jinja/strings.h"
#include "text/unicode.h"

namespace quire::jinja {
namespace {

using std::string_view;

constexpr size_t kNone = string_view::npos;

template <std::string (*kConvert)(string_view)>
Value convert(Interpreter& in, const Value& self, const Arguments& arguments) {
  const Parameters none("this method", arguments, {});
  in.arena().scan(self.text().size());
  return Value::string(in.arena(), kConvert(self.text()));
}

template <Side kSide>
Value strip_method(Interpreter& in, const Value& self, const Arguments& arguments) {
  const Parameters p("strip", arguments, {"chars"});
  const string_view characters = p.text(0, "");
  const string_view text = p.has_value(0) ? strip(self.text(), characters, kSide) : strip(self.text(), kSide);
  in.arena().scan(self.text().size() - text.size() + 2 * characters.size());
  return self.part(text);
}

// Close to Unicode's full case folding, which expands the same characters as upper case does.
std::string case_fold(string_view text) {
  std::string folded = to_lower(to_upper(text));
  constexpr string_view kFinalSigma = "\u03c2", kSigma = "\u03c3";
  for (size_t at = folded.find(kFinalSigma); at != kNone; at = folded.find(kFinalSigma, at)) {
    folded.replace(at, kSigma.size(), kSigma);
  }
  return folded;
}

Value parts_list(Interpreter& in, const Value& self, const std::vector<string_view>& parts) {
  in.arena().step(static_cast<int64_t>(parts.size() / 16));
  in.arena().check_room(parts.size() * sizeof(Value));
  std::vector<Value> items;
  items.reserve(parts.size());
  for (const string_view part : parts) items.push_back(self.part(part));
  return make_list(in.arena(), Kind::kList, std::move(items));
}

string_view separator_of(const Parameters& p) {
  const string_view separator = p.text(0, "");
  if (separator.empty()) fail("empty separator");
  return separator;
}

Value split_method(Interpreter& in, const Value& self, const Arguments& arguments) {
  const Parameters p("split", arguments, {"sep", "maxsplit"});
  const int64_t limit = p.integer(1, -1);
  p.has_value(0) ? in.arena().work(self.text().size()) : in.arena().scan(self.text().size());
  return parts_list(in, self,
                    p.has_value(0) ? split(self.text(), separator_of(p), limit) : split_space(self.text(), limit));
}

Value rsplit_method(Interpreter& in, const Value& self, const Arguments& arguments) {
  const Parameters p("rsplit", arguments, {"sep", "maxsplit"});
  const int64_t limit = p.integer(1, -1);
  p.has_value(0) ? in.arena().work(self.text().size()) : in.arena().scan(self.text().size());
  return parts_list(in, self,
                    p.has_value(0) ? split_from_right(self.text(), separator_of(p), limit)
                                   : split_space_from_right(self.text(), limit));
}

Value splitlines_method(Interpreter& in, const Value& self, const Arguments& arguments) {
  const Parameters p("splitlines", arguments, {"keepends"});
  in.arena().scan(self.text().size());
  return parts_list(in, self, split_lines(self.text(), p.flag(0, false)));
}

template <bool kFromRight>
Value partition_method(Interpreter& in, const Value& self, const Arguments& arguments) {
  const Parameters p("partition", arguments, {"sep"}, 1);
  const string_view text = self.text();
  const string_view separator = separator_of(p);
  in.arena().work(text.size());
  const size_t at = kFromRight ? rfind(text, separator) : find(text, separator);
  std::vector<Value> items;
  if (at == kNone) {
    items = {Value::borrowed(""), Value::borrowed("")};
    items.insert(kFromRight ? items.end() : items.begin(), self);
  } else {
    items = {self.part(text.substr(0, at)), p[0], self.part(text.substr(at + separator.size()))};
  }
  return make_list(in.arena(), Kind::kTuple, std::move(items));
}

// The part of a string that find(), count(), startswith() look at.
struct Window {
  string_view text;
  size_t begin;  // bytes before it
  bool valid;    // false if it starts past the end: then nothing is found, not even ""
};

Window window_of(Interpreter& in, const Value& self, const Parameters& p) {
  const string_view text = self.text();
  if (!p.has_value(1) && !p.has_value(2)) return {text, 0, true};
  in.arena().work(text.size());
  const auto length = static_cast<int64_t>(count_characters(text));
  const SliceBounds bounds = slice_bounds(length, p.get(1, Value::none()), p.get(2, Value::none()), Value::none());
  const bool past_end = p.has_value(1) && p.integer(1, 0) > length;
  const size_t begin = byte_offset(text, static_cast<size_t>(bounds.start));
  const size_t size = bounds.count > 0 ? byte_offset(text.substr(begin), static_cast<size_t>(bounds.count)) : 0;
  return {text.substr(begin, size), begin, !past_end && bounds.stop >= bounds.start};
}

template <bool kAtStart>
Value affix_method(Interpreter& in, const Value& self, const Arguments& arguments) {
  const string_view name = kAtStart ? "startswith" : "endswith";
  const Parameters p(name, arguments, {"prefix", "start", "end"}, 1);
  const Window window = window_of(in, self, p);
  const auto matches = [&](const Value& affix) {
    if (!affix.is_string()) {
      if (affix.is_undefined()) affix.fail_undefined();
      fail(fmt::format("{} first arg must be str or a tuple of str, not {}", name, type_name(affix)));
    }
    in.arena().work(affix.text().size());
    return window.valid && (kAtStart ? window.text.starts_with(affix.text()) : window.text.ends_with(affix.text()));
  };
  if (p[0].kind() != Kind::kTuple) return Value::boolean(matches(p[0]));
  return Value::boolean(std::any_of(p[0].items().begin(), p[0].items().end(), matches));
}

template <bool kFromRight, bool kMustExist>
Value find_method_of_string(Interpreter& in, const Value& self, const Arguments& arguments) {
  const Parameters p(kMustExist ? "index" : "find", arguments, {"sub", "start", "end"}, 1);
  in.arena().work(self.text().size());
  const string_view part = p.text(0, "");
  const Window window = window_of(in, self, p);
  const size_t at = !window.valid ? kNone : kFromRight ? rfind(window.text, part) : find(window.text, part);
  if (at != kNone) {
    return Value::integer(static_cast<int64_t>(count_characters(self.text().substr(0, window.begin + at))));
  }
  if (kMustExist) fail("substring not found");
  return Value::integer(-1);
}

Value count_in_string(Interpreter& in, const Value& self, const Arguments& arguments) {
  const Parameters p("count", arguments, {"sub", "start", "end"}, 1);
  in.arena().work(self.text().size());
  const Window window = window_of(in, self, p);
  return Value::integer(window.valid ? static_cast<int64_t>(count_parts(window.text, p.text(0, ""))) : 0);
}

Value replace_method(Interpreter& in, const Value& self, const Arguments& arguments) {
  const Parameters p("replace", arguments, {"old", "new", "count"}, 2);
  in.arena().work(self.text().size());
  return Value::string(in.arena(), replace(self.text(), p.text(0, ""), p.text(1, ""), p.integer(2, -1)));
}

Value join_method(Interpreter& in, const Value& self, const Arguments& arguments) {
  const Parameters p("join", arguments, {"iterable"}, 1);
  std::string out;
  bool first = true;
  for_each(in.arena(), p[0], [&](const Value& item) {
    if (!item.is_string()) fail(fmt::format("join() expects strings, {} found", type_name(item)));
    if (!first) out += self.text();
    first = false;
    append_str(out, item);
    return true;
  });
  return Value::string(in.arena(), std::move(out));
}

Value removeprefix_method(Interpreter& in, const Value& self, const Arguments& arguments) {
  const Parameters p("removeprefix", arguments, {"prefix"}, 1);
  const string_view prefix = p.text(0, "");
  in.arena().work(prefix.size());
  return self.text().starts_with(prefix) ? self.part(self.text().substr(prefix.size())) : self;
}

Value removesuffix_method(Interpreter& in, const Value& self, const Arguments& arguments) {
  const Parameters p("removesuffix", arguments, {"suffix"}, 1);
  const string_view suffix = p.text(0, "");
  in.arena().work(suffix.size());
  return self.text().ends_with(suffix) ? self.part(self.text().substr(0, self.text().size() - suffix.size())) : self;
}

enum class Align { kLeft, kRight, kCenter };

template <Align kAlign>
Value justify_method(Interpreter& in, const Value& self, const Arguments& arguments) {
  const Parameters p("ljust", arguments, {"width", "fillchar"}, 1);
  const string_view fill = p.text(1, " ");
  if (count_characters(fill) != 1) fail("The fill character must be exactly one character long");
  const int64_t width = p.integer(0, 0);
  in.arena().work(self.text().size());
  const auto length = static_cast<int64_t>(count_characters(self.text()));
  if (width <= length) return self;
  const int64_t missing = width - length;
  if (missing > static_cast<int64_t>(Arena::kMaxText)) fail(fmt::format("the width {} is too large", width));
  int64_t left = 0;
  if (kAlign == Align::kRight) left = missing;
  if (kAlign == Align::kCenter) left = missing / 2 + (missing & width & 1);
  std::string out;
  for (int64_t i = 0; i < left; ++i) out += fill;
  out += self.text();
  for (int64_t i = left; i < missing; ++i) out += fill;
  return Value::string(in.arena(), std::move(out));
}

Value zfill_method(Interpreter& in, const Value& self, const Arguments& arguments) {
  const Parameters p("zfill", arguments, {"width"}, 1);
  const string_view text = self.text();
  const int64_t width = p.integer(0, 0);
  in.arena().work(text.size());
  const auto length = static_cast<int64_t>(count_characters(text));
  if (width <= length) return self;
  const int64_t missing = width - length;
  if (missing > static_cast<int64_t>(Arena::kMaxText)) fail("the width is too large");
  const size_t sign = !text.empty() && (text[0] == '-' || text[0] == '+') ? 1 : 0;
  std::string out(text.substr(0, sign));
  out.append(static_cast<size_t>(missing), '0');
  out += text.substr(sign);
  return Value::string(in.arena(), std::move(out));
}

Value expandtabs_method(Interpreter& in, const Value& self, const Arguments& arguments) {
  const Parameters p("expandtabs", arguments, {"tabsize"});
  const int64_t size = std::clamp<int64_t>(p.integer(0, 8), 0, 1024);
  in.arena().scan(self.text().size());
  std::string out;
  int64_t column = 0;
  for (const char c : self.text()) {
    if (c == '\t') {
      const int64_t spaces = size > 0 ? size - column % size : 0;
      out.append(static_cast<size_t>(spaces), ' ');
      column += spaces;
    } else {
      out += c;
      if (c == '\n' || c == '\r') {
        column = 0;
      } else if ((static_cast<uint8_t>(c) & 0xC0) != 0x80) {
        ++column;
      }
    }
    if (out.size() > Arena::kMaxText) fail("the string is too long");
  }
  return Value::string(in.arena(), std::move(out));
}

template <bool (*kPredicate)(char32_t), bool kEmpty = false>
Value all_characters(Interpreter& in, const Value& self, const Arguments& arguments) {
  const Parameters none("this method", arguments, {});
  in.arena().scan(self.text().size());
  const char* p = self.text().data();
  const char* const end = p + self.text().size();
  if (p == end) return Value::boolean(kEmpty);
  while (p < end) {
    if (!kPredicate(next_character(p, end))) return Value::boolean(false);
  }
  return Value::boolean(true);
}

bool is_scalar(int64_t code) { return code >= 0 && code <= 0x10FFFF && (code < 0xD800 || code >= 0xE000); }

bool is_alphanumeric(char32_t code) { return is_alpha(code) || is_numeric(code) || is_digit(code); }

Value isascii_method(Interpreter& in, const Value& self, const Arguments&) {
  in.arena().work(self.text().size());
  return Value::boolean(std::all_of(self.text().begin(), self.text().end(), [](char c) { return (c & 0x80) == 0; }));
}

template <bool (*kWanted)(char32_t), bool (*kUnwanted)(char32_t)>
Value has_case(Interpreter& in, const Value& self, const Arguments&) {
  in.arena().scan(self.text().size());
  const char* p = self.text().data();
  const char* const end = p + self.text().size();
  bool found = false;
  while (p < end) {
    const char32_t code = next_character(p, end);
    if (kUnwanted(code)) return Value::boolean(false);
    found |= kWanted(code);
  }
  return Value::boolean(found);
}

Value isidentifier_method(Interpreter& in, const Value& self, const Arguments& arguments) {
  const Parameters none("isidentifier", arguments, {});
  in.arena().scan(self.text().size());
  const char* p = self.text().data();
  const char* const end = p + self.text().size();
  bool good = p < end;
  for (bool first = true; good && p < end; first = false) {
    const char32_t code = next_character(p, end);
    good = code == '_' || is_alpha(code) || (!first && is_word(code));
  }
  return Value::boolean(good);
}

// The table maps code points to code points, strings or none, which drops the character.
Value translate_method(Interpreter& in, const Value& self, const Arguments& arguments) {
  const Parameters p("translate", arguments, {"table"}, 1);
  if (!p[0].is_dict()) fail(fmt::format("translate() needs a dict, not {}", type_name(p[0])));
  std::string out;
  const char* at = self.text().data();
  const char* const end = at + self.text().size();
  while (at < end) {
    const char* const start = at;
    const Value* entry = p[0].dict().find(Value::integer(next_character(at, end)));
    in.arena().step();
    if (!entry) {
      out.append(start, at);
    } else if (entry->is_string()) {
      out += entry->text();
    } else if (entry->is_integer() && is_scalar(entry->as_integer())) {
      append_utf8(out, static_cast<char32_t>(entry->as_integer()));
    } else if (!entry->is_none()) {
      fail("character mapping must return integer, None or str");
    }
    if (out.size() > Arena::kMaxText) fail("translate: the result is too long");
  }
  return Value::string(in.arena(), std::move(out));
}

Value istitle_method(Interpreter& in, const Value& self, const Arguments&) {
  in.arena().scan(self.text().size());
  const char* p = self.text().data();
  const char* const end = p + self.text().size();
  bool cased = false;
  bool found = false;
  while (p < end) {
    const char32_t code = next_character(p, end);
    if (is_upper(code) ? cased : is_lower(code) && !cased) return Value::boolean(false);
    cased = is_upper(code) || is_lower(code);
    found |= cased;
  }
  return Value::boolean(found);
}

Value format_method(Interpreter& in, const Value& self, const Arguments& arguments) {
  return format_braces(in, self, arguments);
}

Value format_map_method(Interpreter& in, const Value& self, const Arguments& arguments) {
  const Parameters p("format_map", arguments, {"mapping"}, 1);
  if (!p[0].is_dict()) fail(fmt::format("format_map() argument must be a mapping, not {}", type_name(p[0])));
  Arguments fields;
  for (const auto& [name, value] : p[0].dict().entries) {
    if (name.is_string()) fields.keyword.emplace_back(name, value);
  }
  return format_braces(in, self, fields);
}

Value index_of_item(Interpreter& in, const Value& self, const Arguments& arguments) {
  const Parameters p("index", arguments, {"value", "start", "stop"}, 1);
  const auto& items = self.items();
  const SliceBounds bounds =
      slice_bounds(static_cast<int64_t>(items.size()), p.get(1, Value::none()), p.get(2, Value::none()), Value::none());
  in.arena().step(bounds.count / 16);
  for (int64_t i = bounds.start; i < bounds.stop; ++i) {
    if (equal(in.arena(), items[static_cast<size_t>(i)], p[0])) return Value::integer(i);
  }
  std::string reason;
  append_repr(reason, p[0]);
  fail(fmt::format("{} is not in {}", reason, type_name(self)));
}

Value count_items(Interpreter& in, const Value& self, const Arguments& arguments) {
  const Parameters p("count", arguments, {"value"}, 1);
  in.arena().step(static_cast<int64_t>(self.items().size() / 16));
  return Value::integer(std::count_if(self.items().begin(), self.items().end(),
                                      [&](const Value& item) { return equal(in.arena(), item, p[0]); }));
}

Value copy_list(Interpreter& in, const Value& self, const Arguments&) {
  return make_list(in.arena(), Kind::kList, iterate(in.arena(), self));
}

template <class Make>
Value dict_view(Interpreter& in, const Value& self, string_view prefix, Make&& make) {
  const auto& entries = self.dict().entries;
  in.arena().check_room(entries.size() * sizeof(Value));
  in.arena().step(static_cast<int64_t>(entries.size()));
  std::vector<Value> items;
  items.reserve(entries.size());
  for (const auto& entry : entries) items.push_back(make(entry));
  Value view = make_list(in.arena(), Kind::kView, std::move(items));
  view.list().prefix = prefix;
  return view;
}

Value keys_method(Interpreter& in, const Value& self, const Arguments& arguments) {
  const Parameters none("keys", arguments, {});
  return dict_view(in, self, "dict_keys", [](const auto& entry) { return entry.first; });
}

Value values_method(Interpreter& in, const Value& self, const Arguments& arguments) {
  const Parameters none("values", arguments, {});
  return dict_view(in, self, "dict_values", [](const auto& entry) { return entry.second; });
}

Value items_method(Interpreter& in, const Value& self, const Arguments& arguments) {
  const Parameters none("items", arguments, {});
  return dict_view(in, self, "dict_items", [&](const auto& entry) {
    return make_list(in.arena(), Kind::kTuple, {entry.first, entry.second});
  });
}

Value get_method(Interpreter&, const Value& self, const Arguments& arguments) {
  const Parameters p("get", arguments, {"key", "default"}, 1);
  const Value* value = self.dict().find(p[0]);
  return value ? *value : p.get(1, Value::none());
}

Value copy_dict(Interpreter& in, const Value& self, const Arguments&) {
  Value result;
  DictObject& dict = make_dict(in.arena(), result);
  in.arena().step(static_cast<int64_t>(self.dict().entries.size()));
  for (const auto& [key, value] : self.dict().entries) dict.append(key, value);
  return result;
}

Value is_integer_method(Interpreter&, const Value& self, const Arguments& arguments) {
  const Parameters none("is_integer", arguments, {});
  return Value::boolean(std::isfinite(self.as_real()) && std::trunc(self.as_real()) == self.as_real());
}

Value bit_length_method(Interpreter&, const Value& self, const Arguments& arguments) {
  const Parameters none("bit_length", arguments, {});
  const int64_t value = self.as_integer();
  return Value::integer(std::bit_width(value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value)));
}

struct Entry {
  string_view name;
  Method method;
};

constexpr Entry kStringMethods[] = {
    {"strip", strip_method<Side::kBoth>},
    {"split", split_method},
    {"startswith", affix_method<true>},
    {"endswith", affix_method<false>},
    {"lstrip", strip_method<Side::kLeft>},
    {"rstrip", strip_method<Side::kRight>},
    {"replace", replace_method},
    {"lower", convert<to_lower>},
    {"upper", convert<to_upper>},
    {"title", convert<to_title>},
    {"capitalize", convert<capitalize>},
    {"casefold", convert<case_fold>},
    {"swapcase", convert<swap_case>},
    {"rsplit", rsplit_method},
    {"splitlines", splitlines_method},
    {"partition", partition_method<false>},
    {"rpartition", partition_method<true>},
    {"find", find_method_of_string<false, false>},
    {"rfind", find_method_of_string<true, false>},
    {"index", find_method_of_string<false, true>},
    {"rindex", find_method_of_string<true, true>},
    {"count", count_in_string},
    {"join", join_method},
    {"format", format_method},
    {"format_map", format_map_method},
    {"removeprefix", removeprefix_method},
    {"removesuffix", removesuffix_method},
    {"ljust", justify_method<Align::kLeft>},
    {"rjust", justify_method<Align::kRight>},
    {"center", justify_method<Align::kCenter>},
    {"zfill", zfill_method},
    {"expandtabs", expandtabs_method},
    {"isalpha", all_characters<is_alpha>},
    {"isalnum", all_characters<is_alphanumeric>},
    {"isdigit", all_characters<is_digit>},
    {"isdecimal", all_characters<is_digit>},
    {"isnumeric", all_characters<is_numeric>},
    {"isspace", all_characters<is_space>},
    {"isprintable", all_characters<is_printable, true>},
    {"isascii", isascii_method},
    {"isupper", has_case<is_upper, is_lower>},
    {"islower", has_case<is_lower, is_upper>},
    {"istitle", istitle_method},
    {"isidentifier", isidentifier_method},
    {"translate", translate_method},
};
constexpr Entry kIntegerMethods[] = {{"bit_length", bit_length_method}};
constexpr Entry kRealMethods[] = {{"is_integer", is_integer_method}};
constexpr Entry kSequenceMethods[] = {{"index", index_of_item}, {"count", count_items}};
constexpr Entry kListMethods[] = {{"index", index_of_item}, {"count", count_items}, {"copy", copy_list}};
constexpr Entry kDictMethods[] = {{"items", items_method},
                                  {"get", get_method},
                                  {"keys", keys_method},
                                  {"values", values_method},
                                  {"copy", copy_dict}};

template <size_t kSize>
Method find_in(const Entry (&table)[kSize], string_view name) {
  const auto* const entry =
      std::find_if(std::begin(table), std::end(table), [&](const Entry& e) { return e.name == name; });
  return entry == std::end(table) ? nullptr : entry->method;
}

}  // namespace

Method find_method(Kind type, string_view name) {
  switch (type) {
    case Kind::kString:
      return find_in(kStringMethods, name);
    case Kind::kBool:
    case Kind::kInt:
      return find_in(kIntegerMethods, name);
    case Kind::kFloat:
      return find_in(kRealMethods, name);
    case Kind::kDict:
      return find_in(kDictMethods, name);
    case Kind::kList:
      return find_in(kListMethods, name);
    case Kind::kTuple:
    case Kind::kRange:
      return find_in(kSequenceMethods, name);
    default:
      return nullptr;
  }
}

bool is_mutating_method(Kind type, string_view name) {
  static constexpr string_view kOfLists[] = {"append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"};
  static constexpr string_view kOfDicts[] = {"clear", "pop", "popitem", "setdefault", "update"};
  const auto has = [&](const auto& names) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
  };
  return (type == Kind::kList && has(kOfLists)) || (type == Kind::kDict && has(kOfDicts));
}

}  // namespace quire::jinja
