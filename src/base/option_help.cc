// --help, the docs page and the values as JSON, all from the rows.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/option_json.h"
#include "base/option_table.h"

namespace quire {
namespace {

constexpr size_t kHelpColumn = 34, kWidth = 110;

// Appends words to `out`, broken at kWidth; lines after the first begin at `indent`. `column` is where the first word
// goes.
void append_wrapped(std::string& out, std::string_view text, size_t column, size_t indent) {
  size_t at = column;
  bool first = true;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    if (!first && at + 1 + word.size() > kWidth) {
      out += '\n' + std::string(indent, ' ');
      at = indent;
    } else if (!first) {
      out += ' ';
      ++at;
    }
    out += word;
    at += word.size();
    first = false;
  }
  out += '\n';
}

std::string placeholder(const OptionTarget& target) {
  struct Name {
    std::string operator()(const bool*) const { return {}; }
    std::string operator()(Unbound) const { return "VALUE"; }
    std::string operator()(const std::string*) const { return "TEXT"; }
    std::string operator()(const double*) const { return "X"; }
    std::string operator()(const std::optional<double>*) const { return "X"; }
    std::string operator()(const std::vector<int>*) const { return "N [N ...]"; }
    std::string operator()(const std::vector<std::string>*) const { return "TEXT [TEXT ...]"; }
    std::string operator()(const void*) const { return "N"; }
  };
  return std::visit(Name{}, target);
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  return out;
}

std::string escape_cell(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '|' ? "\\|" : std::string(1, c);
  return out;
}

// "-tp, --tensor-parallel-size"; a switch shows the name that turns it the other way.
std::string flag_list(const std::vector<std::string>& long_names, const std::vector<std::string>& short_names,
                      bool is_switch, std::string_view separator) {
  std::string out;
  const auto add = [&](std::string_view dashes, std::string_view name) {
    if (!out.empty()) out += separator;
    out += dashes;
    out += name;
  };
  for (const std::string& name : short_names) add("-", name);
  for (const std::string& name : long_names) add("--", name);
  const std::string_view name = long_names.front();
  if (is_switch && name.starts_with("enable-")) {
    add("--disable-", name.substr(7));
  } else if (is_switch && !name.starts_with("disable-")) {
    add("--no-", name);
  }
  return out;
}

struct JsonOf {
  std::string operator()(Unbound) const { return "null"; }
  std::string operator()(const bool* v) const { return *v ? "true" : "false"; }
  std::string operator()(const std::string* v) const { return json_text(*v); }
  std::string operator()(const std::vector<int>* v) const { return fmt::format("[{}]", fmt::join(*v, ",")); }
  std::string operator()(const std::vector<std::string>* v) const { return json_text(*v); }
  std::string operator()(const std::optional<int64_t>* v) const { return *v ? fmt::format("{}", **v) : "null"; }
  std::string operator()(const std::optional<double>* v) const { return *v ? fmt::format("{}", **v) : "null"; }
  std::string operator()(const auto* v) const { return fmt::format("{}", *v); }
};

}  // namespace

std::vector<std::string> OptionTable::groups() const {
  std::vector<std::string> groups;
  for (const OptionRow& row : rows_) {
    if (std::find(groups.begin(), groups.end(), row.group_) == groups.end()) groups.push_back(row.group_);
  }
  return groups;
}

std::string OptionTable::value_text(const OptionRow& row, std::string_view separator) const {
  if (!row.value_name_.empty()) return row.value_name_;
  return row.choices_.empty() ? placeholder(row.target_) : fmt::format("{}", fmt::join(row.choices_, separator));
}

// The default as the flag says it: a switch that is off by default needs no words, an inverted one is off while its
// variable is on.
std::string OptionTable::default_text(const OptionRow& row) const {
  if (!std::holds_alternative<bool*>(row.target_)) return row.default_;
  return (row.default_ == "on") != row.inverted_ ? "on" : "off";
}

std::string OptionTable::row_help(const OptionRow& row) const {
  const bool is_value = row.kind_ == OptionRow::Kind::kValue;
  const bool is_switch = std::holds_alternative<bool*>(row.target_);
  std::string head = "  " + flag_list(long_names(row), row.short_names_, is_switch && is_value, ", ");
  if (const std::string value = value_text(row, ","); !value.empty()) {
    head +=
        row.choices_.empty() || !row.value_name_.empty() ? fmt::format(" {}", value) : fmt::format(" {{{}}}", value);
  }
  if (head.size() + 2 > kHelpColumn) {
    head += '\n';
    head.append(kHelpColumn, ' ');
  } else {
    head.append(kHelpColumn - head.size(), ' ');
  }
  std::string line = row.kind_ == OptionRow::Kind::kIgnored ? "(no effect) " : is_value ? "" : "(refused) ";
  line += row.help_;
  const std::string standard = default_text(row);
  if (is_value && !standard.empty() && !(is_switch && standard == "off"))
    line += fmt::format(" (default: {})", standard);
  if (!row.variables_.empty()) line += fmt::format(" [{}]", fmt::join(row.variables_, ", "));
  append_wrapped(head, line, kHelpColumn, kHelpColumn);
  return head;
}

std::string OptionTable::help() const { return help(""); }

std::string OptionTable::help(std::string_view word) const {
  const std::string wanted = lower(word) == "all" ? "" : lower(word);
  const std::vector<std::string> all_groups = groups();
  const bool is_group =
      std::any_of(all_groups.begin(), all_groups.end(), [&](const auto& g) { return lower(g) == wanted; });
  const auto selected = [&](const OptionRow& row) {
    if (wanted.empty()) return true;
    if (is_group) return lower(row.group_) == wanted;
    return lower(row.name_).find(wanted) != std::string::npos || lower(row.help_).find(wanted) != std::string::npos;
  };
  std::string out = fmt::format("usage: {}", command_);
  for (const OptionRow& row : rows_) {
    if (row.name_ != positional_) continue;
    const bool is_list = std::holds_alternative<std::vector<std::string>*>(row.target_);
    out += fmt::format(" [{}{}]", row.value_name_.empty() ? row.name_ : row.value_name_, is_list ? " ..." : "");
  }
  out += fmt::format(" [options]\n\n{}\n", summary_);

  std::vector<std::string> ignored_names, refused_names;
  bool found = false;
  for (const std::string& group : all_groups) {
    std::string rows;
    for (const OptionRow& row : rows_) {
      if (row.group_ != group || !selected(row)) continue;
      found = true;
      if (row.kind_ == OptionRow::Kind::kValue || !wanted.empty()) {
        rows += row_help(row);
      } else {
        (row.kind_ == OptionRow::Kind::kIgnored ? ignored_names : refused_names).push_back("--" + row.name_);
      }
    }
    if (!rows.empty()) out += fmt::format("\n{}:\n{}", group, rows);
  }
  if (!found) out += fmt::format("\nno group or option matches '{}'\n", word);
  const auto list_names = [&](std::string_view title, const std::vector<std::string>& names) {
    if (names.empty()) return;
    out += fmt::format("\n{}:\n  ", title);
    append_wrapped(out, fmt::format("{}", fmt::join(names, " ")), 2, 2);
  };
  list_names("Accepted without effect (--help=NAME says why)", ignored_names);
  list_names("Known from vLLM, not supported", refused_names);
  return out;
}

std::string OptionTable::markdown() const {
  using Kind = OptionRow::Kind;
  std::string out = fmt::format("# {}\n\n{}\n", command_, summary_);
  for (const std::string& group : groups()) {
    std::string rows;
    for (const OptionRow& row : rows_) {
      if (row.group_ != group || row.kind_ != Kind::kValue) continue;
      const std::string flags =
          flag_list(long_names(row), row.short_names_, std::holds_alternative<bool*>(row.target_), "`, `");
      rows += fmt::format("| `{}` | {} | {} | {} | {} |\n", flags, escape_cell(value_text(row, ", ")),
                          escape_cell(default_text(row)), fmt::join(row.variables_, ", "), escape_cell(row.help_));
    }
    if (rows.empty()) continue;
    out += fmt::format("\n## {}\n\n| flag | value | default | environment | meaning |\n", group);
    out += "| --- | --- | --- | --- | --- |\n" + rows;
  }
  for (const auto& [kind, title] : {std::pair(Kind::kIgnored, "Accepted without effect"),
                                    std::pair(Kind::kRefused, "Known from vLLM, not supported")}) {
    std::string rows;
    for (const OptionRow& row : rows_) {
      if (row.kind_ == kind) rows += fmt::format("| `--{}` | {} |\n", row.name_, escape_cell(row.help_));
    }
    if (!rows.empty()) out += fmt::format("\n## {}\n\n| flag | why |\n| --- | --- |\n{}", title, rows);
  }
  return out;
}

std::string OptionTable::values_json() const {
  std::string out = "{";
  for (const OptionRow& row : rows_) {
    if (row.kind_ != OptionRow::Kind::kValue || std::holds_alternative<Unbound>(row.target_)) continue;
    // "is on" reads better than what an inverted row's variable says.
    const auto* const* flag = std::get_if<bool*>(&row.target_);
    std::string value =
        flag != nullptr && row.inverted_ ? (**flag ? "false" : "true") : std::visit(JsonOf{}, row.target_);
    if (row.secret_ && value != "[]" && value != R"("")") value = R"("***")";
    fmt::format_to(std::back_inserter(out), "{}{}:{}", out.size() > 1 ? "," : "", json_text(row.name_), value);
  }
  return out + "}";
}

}  // namespace quire
