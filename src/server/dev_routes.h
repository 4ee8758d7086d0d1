#pragma once
// Endpoints for development, with --server-dev-mode only.
#include <vector>

#include "server/app.h"

namespace quire {

struct Api;

// GET /server_info?config_format=text|json: the options the server was started with; POST /reset_prefix_cache.
void append_dev_routes(Api& api, std::vector<Route>& routes);

}  // namespace quire
