#pragma once
// Every environment variable that this program reads, in one typed table. VLLM_* variables that have a meaning here are
// aliases; options name the variables that set them (base/option_table.h) and get the value in the option's own words.
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

enum class VariableUse : unsigned char {
  kOption,    // sets an option
  kDirect,    // read where it is used (base/cpu_isa, checkpoint)
  kAccepted,  // known, means nothing here, not worth a warning
  kNoEffect,  // known, means nothing here, one warning says why
};

struct VariableRow {
  std::string_view name;
  VariableUse use;
  // How a value is put into the option's words: "" = as it is, "gib" = GiB into bytes, else "1=shuffle;0=plain" (no
  // other value allowed, upper and lower case are the same).
  std::string_view translation;
  std::string_view help;
};

// Sorted as in the docs page.
std::span<const VariableRow> environment_table();

// The variable's value in the option's words; empty if it is unset, "" or its translation says "no value". `name` must
// be in the table (std::logic_error). Throws Error(kInvalidArgument) naming variable, value and the values there are.
std::optional<std::string> environment_value(std::string_view name);

// One warning for each variable without effect, and one that lists the unknown VLLM_* and QUIRE_* names of
// `environment` (NAME=value, null-terminated, as the `environ` of POSIX).
std::vector<std::string> environment_warnings(const char* const* environment);

std::string environment_markdown();

}  // namespace quire
