#include "server/openapi.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "server/api.h"

namespace quire {
namespace {

using Json = nlohmann::ordered_json;

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return text;
}

}  // namespace

Json describe_routes(const std::vector<Route>& routes, const std::string& root_path) {
  Json description = Json::parse(openapi_source());
  description["info"]["version"] = QUIRE_VERSION;
  description["servers"][0]["url"] = root_path.empty() ? "/" : root_path;
  const Json known = std::exchange(description["paths"], Json::object());
  for (const Route& route : routes) {
    const auto path = known.find(route.path);
    for (const std::string& method : route.methods) {
      const std::string name = lower(method);
      // A route that the file does not know is still one that is there.
      description["paths"][route.path][name] = path != known.end() && path->contains(name)
                                                   ? (*path)[name]
                                                   : Json{{"responses", {{"default", {{"description", ""}}}}}};
    }
  }
  return description;
}

void append_openapi_routes(Api& api, std::vector<Route>& routes) {
  if (api.config.disable_fastapi_docs) return;
  struct Pages {
    std::string json, html;
  };
  const auto pages = std::make_shared<Pages>();
  routes.push_back({{"GET"}, "/openapi.json", [pages](const std::shared_ptr<HttpExchange>& exchange) {
                      exchange->respond(json_response(pages->json));
                    }});
  routes.push_back({{"GET"}, "/docs", [pages](const std::shared_ptr<HttpExchange>& exchange) {
                      HttpResponse response;
                      response.content_type = "text/html; charset=utf-8";
                      response.body = pages->html;
                      exchange->respond(std::move(response));
                    }});
  const Json description = describe_routes(routes, api.config.root_path);
  pages->json = description.dump();
  pages->html = docs_page(description);
}

}  // namespace quire
