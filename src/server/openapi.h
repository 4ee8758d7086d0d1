#pragma once
// GET /openapi.json, the description of this server's routes (OpenAPI 3.1), and GET /docs, a page made of it.
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "server/app.h"

namespace quire {

struct Api;

// openapi.json of the source tree: every route that a server may have.
std::string_view openapi_source();
// The description of the given routes only. root_path: where clients find them, "" = at the root.
nlohmann::ordered_json describe_routes(const std::vector<Route>& routes, const std::string& root_path);
// One HTML page without scripts or anything else to be loaded.
std::string docs_page(const nlohmann::ordered_json& description);

// After all other routes: they are what is described. Does nothing with --disable-fastapi-docs.
void append_openapi_routes(Api& api, std::vector<Route>& routes);

}  // namespace quire
