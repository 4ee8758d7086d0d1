// Functions that every template sees.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "text/jinja/builtins.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"

namespace quire::jinja {
namespace {

constexpr int64_t kMaxRange = 100'000;

Value global_range(Interpreter& in, const Arguments& arguments) {
  const Parameters p("range", arguments, {"start", "stop", "step"}, 1);
  for (size_t i = 0; i < arguments.positional.size(); ++i) {
    if (!p[i].is_integer()) {
      if (p[i].is_undefined()) p[i].fail_undefined();
      fail(fmt::format("'{}' object cannot be interpreted as an integer", type_name(p[i])));
    }
  }
  const int64_t start = p.has(1) ? p.integer(0, 0) : 0;
  const int64_t stop = p.integer(p.has(1) ? 1 : 0, 0);
  const int64_t stride = p.integer(2, 1);
  if (stride == 0) fail("range() arg 3 must not be zero");
  // In unsigned arithmetic the distance of any two ends fits.
  const bool empty = stride > 0 ? start >= stop : start <= stop;
  const uint64_t distance = stride > 0 ? static_cast<uint64_t>(stop) - static_cast<uint64_t>(start)
                                       : static_cast<uint64_t>(start) - static_cast<uint64_t>(stop);
  const uint64_t step = stride > 0 ? static_cast<uint64_t>(stride) : 0 - static_cast<uint64_t>(stride);
  const uint64_t count = empty ? 0 : (distance - 1) / step + 1;
  if (count > kMaxRange) fail(fmt::format("Range too big. Ranges are not longer than {}.", kMaxRange));
  in.arena().step(static_cast<int64_t>(count / 16));
  in.arena().check_room(count * sizeof(Value));
  std::vector<Value> items;
  items.reserve(count);
  for (uint64_t i = 0; i < count; ++i) items.push_back(Value::integer(start + static_cast<int64_t>(i) * stride));
  Value range = make_list(in.arena(), Kind::kRange, std::move(items));
  range.list().start = start;
  range.list().stop = stop;
  range.list().stride = stride;
  return range;
}

// What dict() and namespace() take: a mapping or pairs, and keywords.
void fill(Interpreter& in, DictObject& out, const Arguments& arguments) {
  if (arguments.positional.size() > 1) {
    fail(fmt::format("dict expected at most 1 argument, got {}", arguments.positional.size()));
  }
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional[0];
    if (source.is_dict()) {
      for (const auto& [key, value] : source.dict().entries) out.set(key, value);
    } else {
      for_each(in.arena(), source, [&](const Value& pair) {
        std::vector<Value> parts = iterate(in.arena(), pair);
        if (parts.size() != 2) fail("dict update sequence elements must have length 2");
        out.set(std::move(parts[0]), std::move(parts[1]));
        return true;
      });
    }
  }
  for (const auto& [key, value] : arguments.keyword) out.set(key, value);
}

Value global_dict(Interpreter& in, const Arguments& arguments) {
  Value result;
  fill(in, make_dict(in.arena(), result), arguments);
  return result;
}

Value global_namespace(Interpreter& in, const Arguments& arguments) {
  auto* attributes = in.arena().make<NamespaceObject>();
  Value result = Value::object(Kind::kNamespace, attributes);
  fill(in, *attributes, arguments);
  for (const auto& [key, value] : attributes->entries) {
    if (key.is_string() && key.text().starts_with('_')) {
      fail(fmt::format("a namespace cannot hold the attribute '{}': its name begins with an underscore", key.text()));
    }
  }
  return result;
}

Value global_raise_exception(Interpreter&, const Arguments& arguments) {
  const Parameters p("raise_exception", arguments, {"message"}, 1);
  throw invalid_argument(to_str(p[0]));
}

Value global_strftime_now(Interpreter& in, const Arguments& arguments) {
  const Parameters p("strftime_now", arguments, {"format"}, 1);
  std::string format(p.text(0, ""));
  for (size_t at = format.find('%'); at != std::string::npos && at + 1 < format.size(); at = format.find('%', at + 2)) {
    if (format[at + 1] == 'f') format.replace(at, 2, "000000");  // microseconds, which C does not know
  }
  const std::tm now = in.now();
  format += '|';  // so that an empty result differs from one that does not fit
  char buffer[4096];
  const size_t size = std::strftime(buffer, sizeof(buffer), format.c_str(), &now);
  if (size == 0) fail(fmt::format("strftime_now: the result is longer than {} bytes", sizeof(buffer)));
  return Value::string(in.arena(), std::string(buffer, size - 1));
}

class CyclerObject final : public Callable {
 public:
  explicit CyclerObject(std::vector<Value> items) : items_(std::move(items)) {}
  void clear() override { items_.clear(); }
  Value call(Interpreter&, const Arguments&) override { fail("'Cycler' object is not callable"); }
  Value attribute(Interpreter& in, std::string_view name) override {
    if (name == "current") return items_[at_];
    if (name != "next" && name != "reset") return Value();
    const Method method = name == "next" ? &CyclerObject::next : &CyclerObject::reset;
    return Value::object(Kind::kMethod, in.arena().make<MethodObject>(Value::object(Kind::kFunction, this), method));
  }

 private:
  static Value next(Interpreter&, const Value& self, const Arguments&) {
    auto& cycler = self.as<CyclerObject>();
    const size_t now = cycler.at_;
    cycler.at_ = (now + 1) % cycler.items_.size();
    return cycler.items_[now];
  }
  static Value reset(Interpreter&, const Value& self, const Arguments&) {
    self.as<CyclerObject>().at_ = 0;
    return Value::none();
  }

  std::vector<Value> items_;
  size_t at_ = 0;
};

Value global_cycler(Interpreter& in, const Arguments& arguments) {
  if (arguments.positional.empty()) fail("at least one item has to be provided");
  return Value::object(Kind::kFunction, in.arena().make<CyclerObject>(arguments.positional));
}

class JoinerObject final : public Callable {
 public:
  explicit JoinerObject(Value separator) : separator_(std::move(separator)) {}
  void clear() override { separator_ = Value(); }
  Value call(Interpreter&, const Arguments&) override {
    return std::exchange(used_, true) ? separator_ : Value::borrowed("");
  }

 private:
  Value separator_;
  bool used_ = false;
};

Value global_joiner(Interpreter& in, const Arguments& arguments) {
  const Parameters p("joiner", arguments, {"sep"});
  return Value::object(Kind::kFunction, in.arena().make<JoinerObject>(p.get(0, Value::borrowed(", "))));
}

struct Entry {
  std::string_view name;
  Function function;
};

constexpr Entry kGlobals[] = {
    {"range", global_range},
    {"dict", global_dict},
    {"namespace", global_namespace},
    {"raise_exception", global_raise_exception},
    {"strftime_now", global_strftime_now},
    {"cycler", global_cycler},
    {"joiner", global_joiner},
};

}  // namespace

Function find_global(std::string_view name) {
  const auto* const entry =
      std::find_if(std::begin(kGlobals), std::end(kGlobals), [&](const Entry& e) { return e.name == name; });
  return entry == std::end(kGlobals) ? nullptr : entry->function;
}

}  // namespace quire::jinja
