#pragma once
// quire serve for programs that bring an engine of their own, as tests do.
#include "cli/command.h"
#include "server/server.h"

namespace quire {

int serve_command(Arguments args, const EngineMaker& make_engine);

}  // namespace quire
