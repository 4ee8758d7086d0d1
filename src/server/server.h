#pragma once
// `quire serve`: an engine behind an OpenAI-shaped HTTP server.
#include <functional>
#include <memory>

#include "engine/config.h"
#include "server/config.h"

namespace quire {

class Engine;

// Makes the engine to serve; for tests that put other parts into it.
using EngineMaker = std::function<std::unique_ptr<Engine>(const EngineConfig&)>;

// Builds the engine, listens, and serves until SIGTERM or SIGINT (a second one ends the process at once). Returns the
// exit code: 0 after a clean stop, 1 with one line in the log if the address can't be bound. Throws Error if the engine
// can't be built.
int run_server(const EngineConfig& engine, ServerConfig server);
int run_server(const EngineConfig& engine, ServerConfig server, const EngineMaker& make_engine);

}  // namespace quire
