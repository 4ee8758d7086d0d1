#pragma once
// The rows of the option table that fill an EngineConfig. Every command that builds an engine adds them.
#include "base/option_table.h"
#include "engine/config.h"

namespace quire {

// Binds every field of `config`, whose present values are the defaults. Flags of vLLM that mean nothing here are taken
// with a warning; those that would promise what is not done are refused.
void add_engine_options(OptionTable& table, EngineConfig& config);

// After parsing: checks what single rows can't see and settles synonyms. Throws Error(kInvalidArgument) naming the
// flags.
void finish_engine_options(EngineConfig& config);

}  // namespace quire
