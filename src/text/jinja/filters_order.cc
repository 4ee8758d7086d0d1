// Filters that compare items with each other.
#include <algorithm>
#include <numeric>

#include "text/jinja/filters.h"
#include "text/jinja/operators.h"
#include "text/jinja/strings.h"

namespace quire::jinja {
namespace {

Value key_of(Interpreter& in, const AttributePath& path, const Value& item, bool case_sensitive) {
  Value key = path(item);
  return case_sensitive ? key : fold_case(in.arena(), key);
}

// Indices of keys in order. Equal ones keep their places, in reverse too. One step for each comparison.
std::vector<size_t> sorted_order(Interpreter& in, const std::vector<Value>& keys, bool reverse) {
  std::vector<size_t> order(keys.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    in.arena().step();
    return reverse ? less(in.arena(), keys[b], keys[a]) : less(in.arena(), keys[a], keys[b]);
  });
  return order;
}

std::vector<Value> in_order(const std::vector<Value>& items, const std::vector<size_t>& order) {
  std::vector<Value> out;
  out.reserve(items.size());
  for (const size_t index : order) out.push_back(items[index]);
  return out;
}

Value filter_sort(Interpreter& in, const Value& input, const Arguments& arguments) {
  const Parameters p("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  const bool case_sensitive = p.flag(1, false);
  const Value attribute = p.get(2, Value::none());
  std::vector<AttributePath> paths;
  if (attribute.is_string()) {
    for (const std::string_view part : split(attribute.text(), ",", -1)) paths.emplace_back(in, attribute.part(part));
  } else {
    paths.emplace_back(in, attribute);
  }
  const std::vector<Value> items = iterate(in.arena(), input);
  std::vector<Value> keys;
  keys.reserve(items.size());
  for (const Value& item : items) {
    in.arena().step();
    std::vector<Value> parts;
    parts.reserve(paths.size());
    for (const AttributePath& path : paths) parts.push_back(key_of(in, path, item, case_sensitive));
    keys.push_back(make_list(in.arena(), Kind::kTuple, std::move(parts)));
  }
  return make_list(in.arena(), Kind::kList, in_order(items, sorted_order(in, keys, p.flag(0, false))));
}

Value filter_dictsort(Interpreter& in, const Value& input, const Arguments& arguments) {
  const Parameters p("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  const std::string_view by = p.text(1, "key");
  if (by != "key" && by != "value") fail("You can only sort by either \"key\" or \"value\"");
  if (input.is_undefined()) input.fail_undefined();
  if (!input.is_dict()) fail("dictsort needs a mapping");
  std::vector<Value> items;
  std::vector<Value> keys;
  for (const auto& [key, value] : input.dict().entries) {
    in.arena().step();
    items.push_back(make_list(in.arena(), Kind::kTuple, {key, value}));
    const Value& compared = by == "key" ? key : value;
    keys.push_back(p.flag(0, false) ? compared : fold_case(in.arena(), compared));
  }
  return make_list(in.arena(), Kind::kList, in_order(items, sorted_order(in, keys, p.flag(2, false))));
}

template <bool kMaximum>
Value filter_extreme(Interpreter& in, const Value& input, const Arguments& arguments) {
  const Parameters p("min", arguments, {"case_sensitive", "attribute"});
  const AttributePath path(in, p.get(1, Value::none()));
  Value best;
  Value best_key;
  bool found = false;
  for_each(in.arena(), input, [&](const Value& item) {
    Value key = key_of(in, path, item, p.flag(0, false));
    if (!found || (kMaximum ? less(in.arena(), best_key, key) : less(in.arena(), key, best_key))) {
      best = item;
      best_key = std::move(key);
    }
    found = true;
    return true;
  });
  return found ? best : Value::undefined(Missing::kHint, "No aggregated item, sequence was empty.");
}

Value filter_unique(Interpreter& in, const Value& input, const Arguments& arguments) {
  const Parameters p("unique", arguments, {"case_sensitive", "attribute"});
  const AttributePath path(in, p.get(1, Value::none()));
  Value seen;
  DictObject& keys = make_dict(in.arena(), seen);
  std::vector<Value> out;
  for_each(in.arena(), input, [&](const Value& item) {
    Value key = key_of(in, path, item, p.flag(0, false));
    if (!keys.find(key)) {
      keys.append(std::move(key), Value::none());
      out.push_back(item);
    }
    return true;
  });
  return make_list(in.arena(), Kind::kIterator, std::move(out));
}

Value filter_groupby(Interpreter& in, const Value& input, const Arguments& arguments) {
  const Parameters p("groupby", arguments, {"attribute", "default", "case_sensitive"}, 1);
  const AttributePath path(in, p[0], p.get(1, Value::none()));
  const bool case_sensitive = p.flag(2, false);
  const std::vector<Value> items = iterate(in.arena(), input);
  std::vector<Value> keys;
  keys.reserve(items.size());
  for (const Value& item : items) {
    in.arena().step();
    keys.push_back(key_of(in, path, item, case_sensitive));
  }
  const std::vector<size_t> order = sorted_order(in, keys, false);
  std::vector<Value> groups;
  for (size_t begin = 0; begin < order.size();) {
    std::vector<Value> members;
    size_t end = begin;
    for (; end < order.size() && equal(in.arena(), keys[order[end]], keys[order[begin]]); ++end) {
      members.push_back(items[order[end]]);
    }
    if (end == begin) fail("groupby: the key does not equal itself");
    Value list = make_list(in.arena(), Kind::kList, std::move(members));
    Value group = make_list(in.arena(), Kind::kTuple, {path(items[order[begin]]), std::move(list)});
    group.list().prefix = "group";
    groups.push_back(std::move(group));
    begin = end;
  }
  return make_list(in.arena(), Kind::kList, std::move(groups));
}

constexpr FilterEntry kFilters[] = {
    {"sort", filter_sort},         {"dictsort", filter_dictsort}, {"min", filter_extreme<false>},
    {"max", filter_extreme<true>}, {"unique", filter_unique},     {"groupby", filter_groupby},
};

}  // namespace

std::span<const FilterEntry> order_filters() { return kFilters; }

}  // namespace quire::jinja
