#pragma once
// The one table that declares every option of a command: names, type, range, default, environment variables, help. It
// yields parsing,
// --help, --config FILE.yaml, the docs page, and clear words for names of vLLM that mean nothing here.
//
//   OptionTable table("quire serve", "Serve a model over HTTP.");
//   table.group("Scheduler");
//   table.add("max-num-seqs", config.max_num_seqs, "sequences in one step").range(1, 65536);
//   ParsedOptions parsed = table.parse(args);
//
// A row's type is that of the variable it is bound to, its default what the variable holds when it is added. The bound
// variables must outlive the table. In names '_' and '-' are the same; `--x=1` is `--x 1`; a bool has `--no-x`, and
// enable-x answers to disable-x too. Order of sources: command line > --config file > environment > default.
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace quire {

struct Unbound {};  // read and checked, stored nowhere

using OptionTarget =
    std::variant<Unbound, bool*, int32_t*, int64_t*, uint16_t*, uint64_t*, double*, std::string*,
                 std::optional<int64_t>*, std::optional<double>*, std::vector<int>*, std::vector<std::string>*>;

class OptionRow {
 public:
  // Another long name, a name after one dash ("tp" for -tp), an environment variable of base/environment.h (the first
  // one set counts).
  OptionRow& alias(std::string name);
  OptionRow& short_name(std::string name);
  OptionRow& env(std::string variable);
  // Smallest and largest number allowed, both included; for lists, of each element.
  OptionRow& range(double min, double max);
  OptionRow& choices(std::vector<std::string> values);  // upper and lower case are the same
  OptionRow& human_readable();                          // 4k = 4,000, 25.6k = 25,600, 4K = 4,096; also m, g, t
  OptionRow& word(std::string text, int64_t value);     // a word that stands for a number: "auto" for 0
  OptionRow& json_list();                               // a list may also be given as ["a", "b"]
  OptionRow& value_name(std::string name);              // what --help calls the value
  OptionRow& only(std::string value, std::string why);  // any other value is refused with this reason
  OptionRow& invert();                                  // bool: the flag turns the variable off
  OptionRow& json_object();                             // text: a JSON object, also by keys: --f.a.b 1, --f.a+=x,y
  OptionRow& secret();                                  // its value is never shown

 private:
  friend class OptionTable;
  enum class Kind : uint8_t { kValue, kIgnored, kRefused };
  std::string name_, group_, help_, value_name_, default_, only_, only_why_;
  std::vector<std::string> aliases_, short_names_, variables_, choices_;
  std::vector<std::pair<std::string, int64_t>> words_;
  std::optional<std::pair<double, double>> range_;
  OptionTarget target_;
  Kind kind_ = Kind::kValue;
  bool human_readable_ = false, json_list_ = false, inverted_ = false, json_object_ = false, secret_ = false;
};

// How many values an option without meaning swallows.
enum class Values : uint8_t { kNone, kOne, kMany };

struct ParsedOptions {
  std::string help;                   // not empty: print it and exit 0
  std::vector<std::string> warnings;  // to be logged, one line each
  std::vector<std::string> set;       // names of the rows that got a value from any source, in the table's order
  std::string values;                 // what all rows hold then, as JSON: {"port":8000,...}; secrets as "***"
  bool is_set(std::string_view name) const;
};

class OptionTable {
 public:
  // command: as typed ("quire serve"); summary: one line for --help.
  OptionTable(std::string command, std::string summary);
  OptionTable(const OptionTable&) = delete;  // rows point into it
  OptionTable& operator=(const OptionTable&) = delete;

  void group(std::string title);  // of the rows that follow
  template <class T>
  OptionRow& add(std::string name, T& variable, std::string help) {
    return add_row(std::move(name), OptionTarget(&variable), std::move(help));
  }
  OptionRow& add_unbound(std::string name, std::string help) {
    return add_row(std::move(name), Unbound{}, std::move(help));
  }
  OptionRow& row(std::string_view name);  // throws std::logic_error if there is none
  // The row that words without a dash go to: one word, or all of them if its type is a list.
  void positional(std::string name);
  // Names of vLLM that are taken with one warning that says why they do nothing, or refused with a reason.
  OptionRow& ignored(std::string name, Values values, std::string why);
  // A refused switch (Values::kNone) may still be turned off.
  OptionRow& refused(std::string name, std::string why, Values values = Values::kOne);

  // Reads environment, --config file and args (without the program's and the command's name) into the bound variables.
  // Throws Error(kInvalidArgument), one line naming flag, value and limit, or the unknown flag and its nearest name.
  ParsedOptions parse(std::span<const std::string> args);

  std::string help() const;  // usage and all rows by group
  std::string help(
      std::string_view word) const;  // the group of that name, else the rows whose name or help has the word
  std::string markdown() const;      // the same as a docs page

 private:
  struct Use {  // a row as a flag names it
    OptionRow* row;
    bool negated;
    std::string key;  // "a.b" of --row.a.b, of a JSON option
  };
  struct Pending;  // values of a row from one source
  OptionRow& add_row(std::string name, OptionTarget target, std::string help);
  std::optional<Use> find_long(std::string_view name);
  std::optional<Use> find_short(std::string_view name);
  std::string nearest(std::string_view name) const;
  std::vector<std::string> long_names(const OptionRow& row) const;
  std::vector<std::string> groups() const;  // titles in order of their first row
  std::string value_text(const OptionRow& row, std::string_view separator) const;
  std::string default_text(const OptionRow& row) const;
  std::string row_help(const OptionRow& row) const;
  std::string values_json() const;
  void read_environment(ParsedOptions& parsed);
  void read_file(const std::string& path, ParsedOptions& parsed);
  void read_arguments(std::span<const std::string> args, std::vector<Pending>& out, ParsedOptions& parsed);
  void assign(const Use& use, const std::vector<std::string>& values, std::string_view shown_name,
              ParsedOptions& parsed);

  std::string command_, summary_, group_, positional_, config_file_;
  std::deque<OptionRow> rows_;  // references to rows stay valid
  // Targets of rows without meaning: their type says how many values the row swallows.
  bool unused_switch_ = false;
  std::vector<std::string> unused_list_;
};

// "4k", "25.6k", "4K", "16"; throws Error(kInvalidArgument) naming `flag`.
int64_t parse_human_readable(std::string_view text, std::string_view flag);

// Levenshtein distance with swaps of neighbours, for "did you mean".
int edit_distance(std::string_view a, std::string_view b);

}  // namespace quire
