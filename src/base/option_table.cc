// Declaring rows, finding the one that a flag names, and reading the three sources. Values are converted in
// option_value.cc. The parser is our own: multi-letter names after one dash (-tp), '_' = '-', enable/disable twins,
// greedy lists, repeated flags with a warning and nearest-name hints are each against the grain of a general parser.
#include "base/option_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <fstream>
#include <numeric>
#include <stdexcept>

#include "base/environment.h"
#include "base/error.h"
#include "base/option_json.h"

namespace quire {

OptionRow& OptionRow::alias(std::string name) { return aliases_.push_back(std::move(name)), *this; }
OptionRow& OptionRow::short_name(std::string name) { return short_names_.push_back(std::move(name)), *this; }
OptionRow& OptionRow::env(std::string variable) { return variables_.push_back(std::move(variable)), *this; }
OptionRow& OptionRow::range(double min, double max) { return range_ = std::pair(min, max), *this; }
OptionRow& OptionRow::choices(std::vector<std::string> values) { return choices_ = std::move(values), *this; }
OptionRow& OptionRow::human_readable() { return human_readable_ = true, *this; }
OptionRow& OptionRow::json_list() { return json_list_ = true, *this; }
OptionRow& OptionRow::value_name(std::string name) { return value_name_ = std::move(name), *this; }
OptionRow& OptionRow::invert() { return inverted_ = true, *this; }
OptionRow& OptionRow::json_object() { return json_object_ = true, *this; }
OptionRow& OptionRow::secret() { return secret_ = true, *this; }

OptionRow& OptionRow::word(std::string text, int64_t value) {
  if (default_ == std::to_string(value)) default_ = text;
  words_.emplace_back(std::move(text), value);
  return *this;
}

OptionRow& OptionRow::only(std::string value, std::string why) {
  only_ = std::move(value);
  only_why_ = std::move(why);
  return *this;
}

namespace {

constexpr size_t kMaxConfigFileBytes = 1 << 20;

std::string print_value(const OptionTarget& target) {
  struct Print {
    std::string operator()(Unbound) const { return {}; }
    std::string operator()(const bool* v) const { return *v ? "on" : "off"; }
    std::string operator()(const std::string* v) const { return *v; }
    std::string operator()(const std::optional<int64_t>* v) const {
      return v->has_value() ? fmt::format("{}", **v) : std::string();
    }
    std::string operator()(const std::optional<double>* v) const {
      return v->has_value() ? fmt::format("{}", **v) : std::string();
    }
    std::string operator()(const std::vector<int>* v) const { return fmt::format("{}", fmt::join(*v, " ")); }
    std::string operator()(const std::vector<std::string>* v) const { return fmt::format("{}", fmt::join(*v, " ")); }
    std::string operator()(const double* v) const { return fmt::format("{}", *v); }
    std::string operator()(const int32_t* v) const { return fmt::format("{}", *v); }
    std::string operator()(const int64_t* v) const { return fmt::format("{}", *v); }
    std::string operator()(const uint16_t* v) const { return fmt::format("{}", *v); }
    std::string operator()(const uint64_t* v) const { return fmt::format("{}", *v); }
  };
  return std::visit(Print{}, target);
}

// '_' is '-' up to the first dot (keys of a JSON option after it keep theirs).
std::string normalized(std::string_view name) {
  std::string out(name);
  std::replace(out.begin(), out.begin() + static_cast<ptrdiff_t>(std::min(out.size(), out.find('.'))), '_', '-');
  return out;
}

bool looks_like_number(std::string_view token) {
  return token.size() > 1 && (std::isdigit(static_cast<unsigned char>(token[1])) != 0 || token[1] == '.');
}

bool is_switch(const OptionTarget& target) { return std::holds_alternative<bool*>(target); }
bool is_list(const OptionTarget& target) {
  return std::holds_alternative<std::vector<int>*>(target) || std::holds_alternative<std::vector<std::string>*>(target);
}

}  // namespace

struct OptionTable::Pending {
  Use use;
  std::string shown;
  std::vector<std::string> values;
};

bool ParsedOptions::is_set(std::string_view name) const { return std::find(set.begin(), set.end(), name) != set.end(); }

OptionTable::OptionTable(std::string command, std::string summary)
    : command_(std::move(command)), summary_(std::move(summary)) {
  group("General");
  add("config", config_file_, "YAML file of options: long names without dashes; the command line wins")
      .value_name("FILE.yaml");
}

void OptionTable::group(std::string title) { group_ = std::move(title); }

OptionRow& OptionTable::add_row(std::string name, OptionTarget target, std::string help) {
  if (find_long(name).has_value()) throw std::logic_error("option declared twice: " + name);
  OptionRow& row = rows_.emplace_back();
  row.name_ = std::move(name);
  row.group_ = group_;
  row.help_ = std::move(help);
  row.target_ = target;
  row.default_ = print_value(target);
  return row;
}

OptionRow& OptionTable::row(std::string_view name) {
  const std::optional<Use> use = find_long(name);
  if (!use.has_value()) throw std::logic_error("no such option: " + std::string(name));
  return *use->row;
}

void OptionTable::positional(std::string name) { positional_ = std::move(name); }

OptionRow& OptionTable::ignored(std::string name, Values values, std::string why) {
  OptionTarget target = Unbound{};
  if (values == Values::kNone) target = &unused_switch_;
  if (values == Values::kMany) target = &unused_list_;
  OptionRow& row = add_row(std::move(name), target, std::move(why));
  row.kind_ = OptionRow::Kind::kIgnored;
  return row;
}

OptionRow& OptionTable::refused(std::string name, std::string why, Values values) {
  OptionTarget target = Unbound{};
  if (values == Values::kNone) target = &unused_switch_;
  OptionRow& row = add_row(std::move(name), target, std::move(why));
  row.kind_ = OptionRow::Kind::kRefused;
  return row;
}

std::vector<std::string> OptionTable::long_names(const OptionRow& row) const {
  std::vector<std::string> names = {row.name_};
  names.insert(names.end(), row.aliases_.begin(), row.aliases_.end());
  return names;
}

std::optional<OptionTable::Use> OptionTable::find_long(std::string_view name) {
  for (OptionRow& row : rows_) {
    for (const std::string& own : long_names(row)) {
      if (own == name) return Use{&row, false, {}};
    }
  }
  for (OptionRow& row : rows_) {
    if (!is_switch(row.target_)) continue;
    for (const std::string& own : long_names(row)) {
      const bool twin =
          (own.starts_with("enable-") && name.starts_with("disable-") && own.substr(7) == name.substr(8)) ||
          (own.starts_with("disable-") && name.starts_with("enable-") && own.substr(8) == name.substr(7));
      if (twin || (name.starts_with("no-") && own == name.substr(3))) return Use{&row, true, {}};
      if (name.starts_with("no-disable-") && own.starts_with("enable-") && own.substr(7) == name.substr(11))
        return Use{&row, false, {}};
    }
  }
  // --compilation-config.mode 3: a key of a JSON option, or of one that is known by name only.
  if (const size_t dot = name.find('.'); dot != std::string_view::npos && dot + 1 < name.size()) {
    std::optional<Use> use = find_long(name.substr(0, dot));
    if (use.has_value() && (use->row->json_object_ || use->row->kind_ != OptionRow::Kind::kValue)) {
      use->key = name.substr(dot + 1);
      return use;
    }
  }
  return std::nullopt;
}

std::optional<OptionTable::Use> OptionTable::find_short(std::string_view name) {
  const size_t dot = std::min(name.find('.'), name.size());  // -cc.mode 3
  const std::string_view letters = name.substr(0, dot);
  for (OptionRow& row : rows_) {
    if (std::find(row.short_names_.begin(), row.short_names_.end(), letters) == row.short_names_.end()) continue;
    if (dot == name.size()) return Use{&row, false, {}};
    if (row.json_object_ || row.kind_ != OptionRow::Kind::kValue)
      return Use{&row, false, std::string(name.substr(dot + 1))};
  }
  return std::nullopt;
}

int edit_distance(std::string_view a, std::string_view b) {
  // Three rows of the table: two back for swaps.
  std::vector<int> before(b.size() + 1), last(b.size() + 1), now(b.size() + 1);
  std::iota(last.begin(), last.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    now[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) now[j] = std::min(now[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, now);
  }
  return last[b.size()];
}

std::string OptionTable::nearest(std::string_view name) const {
  constexpr size_t kLongestName = 64;  // the work is the product of the lengths
  if (name.size() > kLongestName) return {};
  std::string best;
  int best_distance = static_cast<int>(std::max<size_t>(2, name.size() / 3)) + 1;
  const auto offer = [&](std::string_view candidate) {
    const int distance = edit_distance(name, candidate);
    if (distance >= best_distance) return;
    best_distance = distance;
    best = candidate;
  };
  for (const OptionRow& row : rows_) {
    if (row.kind_ != OptionRow::Kind::kValue) continue;
    for (const std::string& own : long_names(row)) {
      offer(own);
      if (is_switch(row.target_)) offer("no-" + own);
    }
  }
  return best;
}

void OptionTable::read_environment(ParsedOptions& parsed) {
  for (OptionRow& row : rows_) {
    for (const std::string& variable : row.variables_) {
      const std::optional<std::string> value = environment_value(variable);
      if (!value.has_value()) continue;
      assign({&row, false, {}}, {*value}, fmt::format("--{} (from {})", row.name_, variable), parsed);
      break;
    }
  }
}

void OptionTable::read_file(const std::string& path, ParsedOptions& parsed) {
  const auto refuse = [&](const std::string& why) {
    return invalid_argument(fmt::format("--config {}: {}", path, why), "config");
  };
  if (!path.ends_with(".yaml") && !path.ends_with(".yml")) throw refuse("must be a .yaml or .yml file");
  std::ifstream file(path, std::ios::binary);
  if (!file) throw not_found(fmt::format("--config {}: cannot be opened", path), "config");
  std::string text(kMaxConfigFileBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kMaxConfigFileBytes)
    throw refuse(fmt::format("larger than the limit of {} bytes", kMaxConfigFileBytes));
  try {
    const YAML::Node root = YAML::Load(text);
    if (root.IsNull()) return;
    if (!root.IsMap()) throw refuse("must hold `option: value` lines");
    for (const auto& entry : root) {
      const std::string key = normalized(entry.first.as<std::string>());
      const YAML::Node& node = entry.second;
      std::optional<Use> use = key == "config" || key == "help" ? std::nullopt : find_long(key);
      if (!use.has_value()) {
        const std::string hint = nearest(key);
        throw refuse(
            fmt::format("unknown option '{}'{}", key, hint.empty() ? "" : fmt::format("; did you mean '{}'?", hint)));
      }
      const bool switches = is_switch(use->row->target_);
      std::vector<std::string> values;
      if (node.IsNull()) continue;
      if (node.IsSequence()) {
        for (const auto& element : node) values.push_back(element.as<std::string>());
      } else if (node.IsScalar() && switches) {
        if (!node.as<bool>()) {
          if (use->row->kind_ == OptionRow::Kind::kIgnored) continue;
          use->negated = !use->negated;
        }
      } else if (node.IsScalar()) {
        if (node.Tag() != "!" && node.Scalar() == "false") continue;  // unquoted: the option is off
        values.push_back(node.Scalar());
      } else if (use->row->json_object_) {
        try {
          values.push_back(yaml_to_json(node));
        } catch (const std::invalid_argument& error) {
          throw refuse(fmt::format("'{}' {}", key, error.what()));
        }
      } else if (use->row->kind_ == OptionRow::Kind::kValue) {
        throw refuse(fmt::format("'{}' does not take a mapping", key));
      }
      assign(*use, values, fmt::format("{}: {}", path, key), parsed);
    }
  } catch (const YAML::Exception& error) {
    throw refuse(fmt::format("line {}: {}", error.mark.line + 1, error.msg));
  }
}

void OptionTable::read_arguments(std::span<const std::string> args, std::vector<Pending>& out, ParsedOptions& parsed) {
  OptionRow* const positional = positional_.empty() ? nullptr : find_long(positional_)->row;
  bool options_end = false;
  size_t positionals = 0;
  const auto starts_option = [&](const std::string& token) {
    if (token.size() < 2 || token[0] != '-' || options_end) return false;
    return token[1] == '-' || !looks_like_number(token);
  };
  const auto known_short = [&](const std::string& token) {
    return find_short(token.substr(1, token.find('=') - 1)).has_value();
  };

  for (size_t i = 0; i < args.size(); ++i) {
    const std::string& token = args[i];
    if (!options_end && token == "--") {
      options_end = true;
      continue;
    }
    if (!starts_option(token)) {
      if (positional == nullptr || (positionals > 0 && !is_list(positional->target_))) {
        throw invalid_argument(fmt::format("unexpected argument '{}'", token));
      }
      if (positionals++ == 0) {
        out.push_back({{positional, false, {}}, positional_, {token}});
      } else {
        out.back().values.push_back(token);
      }
      continue;
    }
    const bool long_form = token.starts_with("--");
    const size_t equals = token.find('=');
    std::optional<std::string> attached;
    if (equals != std::string::npos) attached = token.substr(equals + 1);
    const std::string name = long_form ? normalized(token.substr(2, equals - 2)) : token.substr(1, equals - 1);
    std::optional<Use> use = long_form ? find_long(name) : find_short(name);
    if (!use.has_value() && !long_form &&
        std::all_of(name.begin() + 1, name.end(), [](char c) { return c >= '0' && c <= '9'; })) {
      use = find_short(name.substr(0, 1));  // -O2
      if (use.has_value()) attached = name.substr(1);
    }
    const std::string shown = (long_form ? "--" : "-") + name;
    if (!use.has_value()) {
      const std::string hint = nearest(name);
      throw invalid_argument(fmt::format("unknown option {}{}", shown,
                                         hint.empty() ? "; --help lists them" : "; did you mean --" + hint + "?"),
                             name);
    }
    Pending pending{*use, shown, {}};
    const OptionTarget& target = use->row->target_;
    if (use->row->kind_ == OptionRow::Kind::kRefused && !use->negated)
      throw invalid_argument(fmt::format("{}: {}", shown, use->row->help_), name);
    if (attached.has_value()) {
      pending.values.push_back(*attached);
    } else if (is_list(target)) {
      while (i + 1 < args.size() && !starts_option(args[i + 1])) pending.values.push_back(args[++i]);
      if (pending.values.empty()) throw invalid_argument(fmt::format("{}: expects at least one value", shown), name);
    } else if (!is_switch(target)) {
      // A single value may begin with a dash ("-q '-5 C?'"), unless it is an option's name.
      const bool there = i + 1 < args.size() && !args[i + 1].starts_with("--") &&
                         !(starts_option(args[i + 1]) && known_short(args[i + 1]));
      if (!there) throw invalid_argument(fmt::format("{}: expects a value", shown), name);
      pending.values.push_back(args[++i]);
    }
    out.push_back(std::move(pending));
  }

  // A repeated option: the last one counts.
  for (size_t i = 0; i < out.size(); ++i) {
    const auto same = [&](const Pending& p) { return p.use.row == out[i].use.row && p.use.key == out[i].use.key; };
    const auto later = std::find_if(out.begin() + static_cast<ptrdiff_t>(i) + 1, out.end(), same);
    if (later == out.end() || out[i].use.key.ends_with('+')) continue;  // a list grows
    if (out[i].use.row->name_ == "config") throw invalid_argument("--config: may be given once", "config");
    const bool warned = std::any_of(out.begin(), out.begin() + static_cast<ptrdiff_t>(i), same);
    if (!warned)
      parsed.warnings.push_back(fmt::format("{} is given more than once; the last one counts",
                                            out[i].use.key.empty() ? "--" + out[i].use.row->name_ : out[i].shown));
  }
}

ParsedOptions OptionTable::parse(std::span<const std::string> args) {
  ParsedOptions parsed;
  for (const std::string& arg : args) {
    if (arg == "--") break;
    if (arg == "--help" || arg == "-h") parsed.help = help();
    if (arg.starts_with("--help=")) parsed.help = arg == "--help=markdown" ? markdown() : help(arg.substr(7));
    if (!parsed.help.empty()) return parsed;
  }
  std::vector<Pending> pending;
  read_arguments(args, pending, parsed);
  const auto is_config = [](const Pending& p) { return p.use.row->name_ == "config"; };
  read_environment(parsed);
  const auto config = std::find_if(pending.begin(), pending.end(), is_config);
  if (config != pending.end()) read_file(config->values.front(), parsed);
  for (const Pending& p : pending) assign(p.use, p.values, p.shown, parsed);

  // In the table's order, each once.
  std::vector<std::string> set;
  for (const OptionRow& row : rows_) {
    if (parsed.is_set(row.name_)) set.push_back(row.name_);
  }
  parsed.set = std::move(set);
  parsed.values = values_json();
  return parsed;
}

}  // namespace quire
