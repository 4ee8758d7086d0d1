// Filters that take or give sequences without ordering them.
#include <fmt/format.h>

#include <algorithm>

#include "text/jinja/filters.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/jinja/strings.h"

namespace quire::jinja {
namespace {

Value make_iterator(Interpreter& in, std::vector<Value> items) {
  return make_list(in.arena(), Kind::kIterator, std::move(items));
}

Value filter_default(Interpreter&, const Value& input, const Arguments& arguments) {
  const Parameters p("default", arguments, {"default_value", "boolean"});
  if (input.is_undefined() || (p.flag(1, false) && !input.truth())) return p.get(0, Value::borrowed(""));
  return input;
}

Value filter_list(Interpreter& in, const Value& input, const Arguments& arguments) {
  const Parameters none("list", arguments, {});
  return make_list(in.arena(), Kind::kList, iterate(in.arena(), input));
}

Value filter_join(Interpreter& in, const Value& input, const Arguments& arguments) {
  const Parameters p("join", arguments, {"d", "attribute"});
  const std::string separator = p.has(0) ? to_str(p[0]) : "";
  const AttributePath path(in, p.get(1, Value::none()));
  std::string out;
  bool first = true;
  for_each(in.arena(), input, [&](const Value& item) {
    if (!first) out += separator;
    first = false;
    append_str(out, path(item));
    return true;
  });
  return Value::string(in.arena(), std::move(out));
}

Value filter_first(Interpreter& in, const Value& input, const Arguments& arguments) {
  const Parameters none("first", arguments, {});
  if (input.is_string()) {
    if (!input.text().empty()) return input.part(first_character(input.text()));
  } else {
    Value first;
    bool found = false;
    for_each(in.arena(), input, [&](const Value& item) {
      first = item;
      found = true;
      return false;
    });
    if (found) return first;
  }
  return Value::undefined(Missing::kHint, "No first item, sequence was empty.");
}

Value filter_last(Interpreter& in, const Value& input, const Arguments& arguments) {
  const Parameters none("last", arguments, {});
  if (input.kind() == Kind::kIterator) fail("'generator' object is not reversible");
  if (input.is_string() && !input.text().empty()) return item_at(in.arena(), input, -1);
  if (input.holds_items() && !input.items().empty()) return input.items().back();
  if (input.is_dict() && !input.dict().entries.empty()) return input.dict().entries.back().first;
  if (!input.is_string() && !input.holds_items() && !input.is_dict() && !input.is_undefined()) {
    fail(fmt::format("'{}' object is not reversible", type_name(input)));
  }
  return Value::undefined(Missing::kHint, "No last item, sequence was empty.");
}

Value filter_reverse(Interpreter& in, const Value& input, const Arguments& arguments) {
  const Parameters none("reverse", arguments, {});
  if (input.is_string()) return slice(in.arena(), input, Value::none(), Value::none(), Value::integer(-1));
  std::vector<Value> items = iterate(in.arena(), input);
  std::reverse(items.begin(), items.end());
  return make_iterator(in, std::move(items));
}

Value filter_items(Interpreter& in, const Value& input, const Arguments& arguments) {
  const Parameters none("items", arguments, {});
  std::vector<Value> items;
  if (!input.is_undefined()) {
    if (!input.is_dict()) fail("Can only get item pairs from a mapping.");
    for (const auto& [key, value] : input.dict().entries) {
      in.arena().step();
      items.push_back(make_list(in.arena(), Kind::kTuple, {key, value}));
    }
  }
  return make_iterator(in, std::move(items));
}

Value filter_map(Interpreter& in, const Value& input, const Arguments& arguments) {
  std::vector<Value> out;
  if (!input.truth()) return make_iterator(in, std::move(out));
  if (arguments.positional.empty()) {
    const Parameters p("map", arguments, {"attribute", "default"});
    if (!p.has(0)) fail("map requires a filter argument");
    const AttributePath path(in, p[0], p.get(1, Value::none()));
    for_each(in.arena(), input, [&](const Value& item) {
      out.push_back(path(item));
      return true;
    });
    return make_iterator(in, std::move(out));
  }
  if (!arguments.positional[0].is_string()) fail("map needs the name of a filter");
  Arguments rest;
  rest.positional.assign(arguments.positional.begin() + 1, arguments.positional.end());
  rest.keyword = arguments.keyword;
  for_each(in.arena(), input, [&](const Value& item) {
    out.push_back(in.call_filter(arguments.positional[0].text(), item, rest));
    return true;
  });
  return make_iterator(in, std::move(out));
}

// select, reject, selectattr, rejectattr.
template <bool kWanted, bool kOfAttribute>
Value filter_select(Interpreter& in, const Value& input, const Arguments& arguments) {
  std::vector<Value> out;
  if (!input.truth()) return make_iterator(in, std::move(out));
  const std::vector<Value>& given = arguments.positional;
  if (kOfAttribute && given.empty()) fail("Missing parameter for attribute name");
  const AttributePath path(in, kOfAttribute ? given[0] : Value::none());
  constexpr size_t kName = kOfAttribute ? 1 : 0;
  Arguments rest;
  const bool has_test = given.size() > kName;
  if (has_test) {
    if (!given[kName].is_string()) fail("select needs the name of a test");
    rest.positional.assign(given.begin() + kName + 1, given.end());
    rest.keyword = arguments.keyword;
  }
  for_each(in.arena(), input, [&](const Value& item) {
    const Value value = path(item);
    const bool passes = has_test ? in.call_test(given[kName].text(), value, rest) : value.truth();
    if (passes == kWanted) out.push_back(item);
    return true;
  });
  return make_iterator(in, std::move(out));
}

int64_t positive(const Parameters& p, size_t index) {
  const int64_t count = p.integer(index, 0);
  if (count < 1 || count > 100'000) fail(fmt::format("the count {} is not between 1 and 100000", count));
  return count;
}

Value filter_batch(Interpreter& in, const Value& input, const Arguments& arguments) {
  const Parameters p("batch", arguments, {"linecount", "fill_with"}, 1);
  const auto size = static_cast<size_t>(positive(p, 0));
  const std::vector<Value> items = iterate(in.arena(), input);
  std::vector<Value> out;
  for (size_t done = 0; done < items.size(); done += size) {
    in.arena().step();
    const size_t count = std::min(size, items.size() - done);
    const auto begin = items.begin() + static_cast<std::ptrdiff_t>(done);
    std::vector<Value> batch(begin, begin + static_cast<std::ptrdiff_t>(count));
    if (p.has_value(1)) batch.resize(size, p[1]);
    out.push_back(make_list(in.arena(), Kind::kList, std::move(batch)));
  }
  return make_iterator(in, std::move(out));
}

Value filter_slice(Interpreter& in, const Value& input, const Arguments& arguments) {
  const Parameters p("slice", arguments, {"slices", "fill_with"}, 1);
  const auto slices = static_cast<size_t>(positive(p, 0));
  const std::vector<Value> items = iterate(in.arena(), input);
  std::vector<Value> out;
  size_t done = 0;
  for (size_t i = 0; i < slices; ++i) {
    in.arena().step();
    const bool extra = i < items.size() % slices;
    const size_t count = items.size() / slices + (extra ? 1 : 0);
    const auto begin = items.begin() + static_cast<std::ptrdiff_t>(done);
    std::vector<Value> part(begin, begin + static_cast<std::ptrdiff_t>(count));
    if (p.has_value(1) && !extra) part.push_back(p[1]);
    out.push_back(make_list(in.arena(), Kind::kList, std::move(part)));
    done += count;
  }
  return make_iterator(in, std::move(out));
}

Value filter_sum(Interpreter& in, const Value& input, const Arguments& arguments) {
  const Parameters p("sum", arguments, {"attribute", "start"});
  const AttributePath path(in, p.get(0, Value::none()));
  Value sum = p.get(1, Value::integer(0));
  if (sum.is_string()) fail("sum() can't sum strings [use ''.join(seq) instead]");
  for_each(in.arena(), input, [&](const Value& item) {
    sum = apply(in.arena(), BinaryOperator::kAdd, sum, path(item));
    return true;
  });
  return sum;
}

Value filter_attr(Interpreter& in, const Value& input, const Arguments& arguments) {
  const Parameters p("attr", arguments, {"name"}, 1);
  if (!p[0].is_string()) fail("attr needs a name");
  // Keys of a dict are no attributes.
  if (input.is_dict() && !find_method(Kind::kDict, p[0].text()) && !is_mutating_method(Kind::kDict, p[0].text())) {
    return Value::undefined(Missing::kAttribute, p[0], &input);
  }
  return in.attribute(input, p[0]);
}

constexpr FilterEntry kFilters[] = {
    {"default", filter_default},
    {"d", filter_default},
    {"list", filter_list},
    {"join", filter_join},
    {"first", filter_first},
    {"last", filter_last},
    {"reverse", filter_reverse},
    {"items", filter_items},
    {"map", filter_map},
    {"select", filter_select<true, false>},
    {"reject", filter_select<false, false>},
    {"selectattr", filter_select<true, true>},
    {"rejectattr", filter_select<false, true>},
    {"batch", filter_batch},
    {"slice", filter_slice},
    {"sum", filter_sum},
    {"attr", filter_attr},
};

}  // namespace

std::span<const FilterEntry> sequence_filters() { return kFilters; }

}  // namespace quire::jinja
