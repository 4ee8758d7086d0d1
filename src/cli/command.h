#pragma once
// What all sub-commands share: their entry points, parsing with --help and warnings, and how they end.
#include <span>
#include <string>

#include "base/log.h"
#include "base/option_table.h"

namespace quire {

using Arguments = std::span<const std::string>;

// Sub-commands: arguments after the command's name; they return the exit code or throw Error.
int chat_command(Arguments args);
int complete_command(Arguments args);
int serve_command(Arguments args);
int bench_command(Arguments args);
int run_batch_command(Arguments args);
int template_command(Arguments args);
int tokenize_command(Arguments args);
int detokenize_command(Arguments args);

// Adds --log-level, parses, applies the level and logs the warnings, those on the environment included. False if help
// was asked for: it has been printed, and the command ends with 0.
bool parse_options(OptionTable& table, Arguments args, LogLevel default_level, ParsedOptions& parsed);

void print(std::string_view text);  // to stdout, flushed; throws Error(kInternal) if that fails

}  // namespace quire
