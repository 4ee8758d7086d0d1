#include "server/dev_routes.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "server/api.h"

namespace quire {
namespace {

using Json = nlohmann::ordered_json;

// The value of a query's parameter as sent, empty if it is not there.
std::string_view query_value(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), pair.size() + 1));
    const size_t equals = std::min(pair.find('='), pair.size());
    if (pair.substr(0, equals) == name) return pair.substr(std::min(equals + 1, pair.size()));
  }
  return {};
}

HttpResponse json_answer(const Json& body) {
  HttpResponse response;
  response.content_type = "application/json";
  response.body = body.dump(-1, ' ', false, Json::error_handler_t::replace);
  return response;
}

HttpResponse server_info(const Api& api, std::string_view format) {
  Json options = Json::parse(api.config.options_json, nullptr, false);
  if (options.is_discarded()) options = Json::object();
  if (format == "json") return json_answer({{"vllm_config", std::move(options)}, {"version", QUIRE_VERSION}});
  if (!format.empty() && format != "text") {
    throw invalid_argument(fmt::format("config_format {}: must be text or json", format.substr(0, 64)),
                           "config_format");
  }
  std::string text;
  for (const auto& [name, value] : options.items()) {
    fmt::format_to(std::back_inserter(text), "{}{}={}", text.empty() ? "" : ", ", name,
                   value.dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  return json_answer({{"vllm_config", std::move(text)}, {"version", QUIRE_VERSION}});
}

}  // namespace

void append_dev_routes(Api& api, std::vector<Route>& routes) {
  using Exchange = const std::shared_ptr<HttpExchange>&;
  routes.push_back({{"GET"}, "/server_info", [&api](Exchange exchange) {
                      exchange->respond(server_info(api, query_value(exchange->request().query, "config_format")));
                    }});
  routes.push_back({{"POST"}, "/reset_prefix_cache", [&api](Exchange exchange) {
                      api.engine.reset_prefix_cache();
                      exchange->respond(json_answer({{"success", true}}));
                    }});
}

}  // namespace quire
