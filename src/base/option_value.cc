// From the words of an option to its variable: types, ranges, choices, human-readable numbers.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "base/option_json.h"
#include "base/option_table.h"

namespace quire {
namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return out;
}

// What is wrong with one value, in the words of its limit; assign() puts flag and value in front.
struct Refusal {
  std::string why;
};

constexpr const char* kTooLarge = "is beyond what 64 bits hold";

template <class Number>
Number parse_whole(std::string_view text, std::string_view expected) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range) throw Refusal{kTooLarge};
  if (error != std::errc{} || end != text.data() + text.size() || text.empty()) throw Refusal{std::string(expected)};
  return value;
}

std::string number_text(double value) {
  return std::abs(value) < 1e15 && value == std::floor(value) ? fmt::format("{:.0f}", value) : fmt::format("{}", value);
}

std::string range_text(double min, double max) {
  if (std::isinf(max)) return "must be at least " + number_text(min);
  return fmt::format("must be from {} to {}", number_text(min), number_text(max));
}

int64_t parse_human_readable_or_refuse(std::string_view text) {
  static constexpr std::string_view kExpected =
      "must be a whole number, with k, m, g, t (thousands) or K, M, G, T (of 1024) if you like";
  const auto refusal = [] { return Refusal{std::string(kExpected)}; };
  if (text.empty()) throw refusal();
  static constexpr std::string_view kDecimal = "kmgt", kBinary = "KMGT";
  double value = 0, unit = 1;
  if (const size_t power = kDecimal.find(text.back()); power != std::string_view::npos) {
    unit = std::pow(1000.0, static_cast<double>(power + 1));
    value = parse_whole<double>(text.substr(0, text.size() - 1), kExpected);
    if (text.find_first_not_of("0123456789.-") != text.size() - 1) throw refusal();  // no exponents, no "inf"
  } else if (const size_t binary = kBinary.find(text.back()); binary != std::string_view::npos) {
    unit = std::pow(1024.0, static_cast<double>(binary + 1));
    value = static_cast<double>(parse_whole<int64_t>(text.substr(0, text.size() - 1), kExpected));
  } else {
    return parse_whole<int64_t>(text, kExpected);
  }
  const double product = value * unit;
  constexpr double kLimit = 9e18;  // within int64
  if (!(std::abs(product) <= kLimit)) throw Refusal{kTooLarge};
  return std::llround(product);
}

// Checks single values against the limits of one row. `current` is the value at fault if a Refusal is thrown.
class ValueParser {
 public:
  std::span<const std::string> choices;
  std::span<const std::pair<std::string, int64_t>> words;
  std::optional<std::pair<double, double>> range;
  bool human_readable = false;
  std::string current;

  template <class Integer>
  Integer integer(const std::string& text) {
    current = text;
    for (const auto& [word, number] : words) {
      if (lower(word) == lower(text)) return static_cast<Integer>(number);
    }
    using Limits = std::numeric_limits<Integer>;
    using Wide = std::conditional_t<std::is_same_v<Integer, uint64_t>, uint64_t, int64_t>;
    const Wide value = human_readable
                           ? static_cast<Wide>(parse_human_readable_or_refuse(text))
                           : parse_whole<Wide>(text, std::is_signed_v<Wide> ? "must be a whole number"
                                                                            : "must be a whole number, not negative");
    const double min = range ? range->first : static_cast<double>(Limits::min());
    const double max = range ? range->second : static_cast<double>(Limits::max());
    const bool fits =
        std::in_range<Integer>(value) && static_cast<double>(value) >= min && static_cast<double>(value) <= max;
    if (!fits) throw Refusal{range_text(min, max)};
    return static_cast<Integer>(value);
  }

  double real(const std::string& text) {
    current = text;
    const auto value = parse_whole<double>(text, "must be a number");
    if (!std::isfinite(value)) throw Refusal{"must be a finite number"};
    if (range && !(value >= range->first && value <= range->second))
      throw Refusal{range_text(range->first, range->second)};
    return value;
  }

  std::string text(const std::string& text) {
    current = text;
    if (text.find('\0') != std::string::npos) throw Refusal{"must not hold a zero byte"};
    if (choices.empty()) return text;
    for (const std::string& choice : choices) {
      if (lower(choice) == lower(text)) return choice;
    }
    throw Refusal{fmt::format("must be one of {}", fmt::join(choices, ", "))};
  }

  bool boolean(const std::string& text) {
    current = text;
    const std::string word = lower(text);
    if (word == "1" || word == "true") return true;
    if (word == "0" || word == "false") return false;
    throw Refusal{"must be true or false"};
  }

  const std::string& single(const std::vector<std::string>& values) {
    current = fmt::format("{}", fmt::join(values, " "));
    if (values.size() != 1) throw Refusal{"expects one value"};
    return values.front();
  }

  std::string json_object(const std::string& text) {
    current = text;
    try {
      return json_object_text(text);
    } catch (const std::invalid_argument& error) {
      throw Refusal{error.what()};
    }
  }

  std::string json_with(const std::string& object, std::string_view key, const std::string& text) {
    current = text;
    try {
      return json_with_key(object, key, text);
    } catch (const std::invalid_argument& error) {
      throw Refusal{error.what()};
    }
  }

  // A JSON array of strings is a YAML one.
  std::vector<std::string> json_list(const std::string& text) {
    current = text;
    try {
      return YAML::Load(text).as<std::vector<std::string>>();
    } catch (const YAML::Exception&) {
      throw Refusal{"must be words or a JSON list of strings"};
    }
  }
};

}  // namespace

int64_t parse_human_readable(std::string_view text, std::string_view flag) {
  try {
    return parse_human_readable_or_refuse(text);
  } catch (const Refusal& refusal) {
    throw invalid_argument(fmt::format("{} {}: {}", flag, text, refusal.why), std::string(flag));
  }
}

void OptionTable::assign(const Use& use, const std::vector<std::string>& values, std::string_view shown_name,
                         ParsedOptions& parsed) {
  using Kind = OptionRow::Kind;
  OptionRow& row = *use.row;
  const bool negated = use.negated;
  if (row.kind_ == Kind::kRefused && negated) return;  // off, which it is
  if (row.kind_ == Kind::kRefused) throw invalid_argument(fmt::format("{}: {}", shown_name, row.help_), row.name_);
  if (row.kind_ == Kind::kIgnored) {
    const std::string warning = fmt::format("{} has no effect here: {}", shown_name, row.help_);
    if (std::find(parsed.warnings.begin(), parsed.warnings.end(), warning) == parsed.warnings.end())
      parsed.warnings.push_back(warning);
    return;
  }

  ValueParser parser{row.choices_, row.words_, row.range_, row.human_readable_, {}};
  const auto store = [&]<class T>(T target) {
    if constexpr (std::is_same_v<T, Unbound>) {
      parser.text(parser.single(values));
    } else if constexpr (std::is_same_v<T, bool*>) {
      const bool on = values.empty() || parser.boolean(parser.single(values));
      *target = (on != negated) != row.inverted_;
    } else if constexpr (std::is_same_v<T, std::string*>) {
      const std::string& text = parser.text(parser.single(values));
      *target = !row.json_object_ ? text
                : use.key.empty() ? parser.json_object(text)
                                  : parser.json_with(*target, use.key, text);
    } else if constexpr (std::is_same_v<T, double*> || std::is_same_v<T, std::optional<double>*>) {
      *target = parser.real(parser.single(values));
    } else if constexpr (std::is_same_v<T, std::optional<int64_t>*>) {
      *target = parser.integer<int64_t>(parser.single(values));
    } else if constexpr (std::is_same_v<T, std::vector<std::string>*> || std::is_same_v<T, std::vector<int>*>) {
      const bool json = row.json_list_ && values.size() == 1 && values.front().starts_with('[');
      std::remove_pointer_t<T> list;
      for (const std::string& value : json ? parser.json_list(values.front()) : values) {
        if constexpr (std::is_same_v<T, std::vector<int>*>) {
          list.push_back(parser.integer<int>(value));
        } else {
          list.push_back(parser.text(value));
        }
      }
      *target = std::move(list);
    } else {
      *target = parser.integer<std::remove_pointer_t<T>>(parser.single(values));
    }
  };
  try {
    if (!row.only_.empty() && parser.single(values) != row.only_) throw Refusal{row.only_why_};
    std::visit(store, row.target_);
  } catch (const Refusal& refusal) {
    throw invalid_argument(
        fmt::format("{} {}: {}", shown_name, parser.current.empty() ? "''" : parser.current, refusal.why), row.name_);
  }
  parsed.set.push_back(row.name_);
}

}  // namespace quire
