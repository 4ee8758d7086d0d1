#include "client/url.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/quote.h"

namespace quire {

std::string HttpUrl::authority() const {
  return (host.find(':') == std::string::npos ? host : "[" + host + "]") + ":" + port;
}

std::string HttpUrl::text() const { return (tls ? "https://" : "http://") + authority() + path; }

HttpUrl parse_http_url(std::string_view text, std::string_view flag) {
  const auto refuse = [&] {
    return invalid_argument(fmt::format("--{} {}: must look like http://host:port/v1", flag, text), std::string(flag));
  };
  HttpUrl url;
  std::string_view rest = text;
  if (rest.starts_with("https://")) {
    url.tls = true;
    rest.remove_prefix(8);
  } else if (rest.starts_with("http://")) {
    rest.remove_prefix(7);
  } else {
    throw refuse();
  }
  if (std::any_of(rest.begin(), rest.end(), [](char c) { return static_cast<unsigned char>(c) <= ' ' || c == 0x7f; }))
    throw refuse();
  const std::string_view authority = rest.substr(0, rest.find('/'));
  url.path = rest.substr(authority.size());
  while (url.path.ends_with('/')) url.path.pop_back();
  size_t colon = authority.rfind(':');
  if (authority.starts_with('[')) {
    const size_t bracket = authority.find(']');
    if (bracket == std::string_view::npos) throw refuse();
    url.host = authority.substr(1, bracket - 1);
    if (colon < bracket) colon = std::string_view::npos;
  } else {
    url.host = authority.substr(0, colon);
  }
  url.port = colon == std::string_view::npos ? (url.tls ? "443" : "80") : std::string(authority.substr(colon + 1));
  if (url.host.empty() || url.port.empty() || url.port.size() > 5 ||
      url.port.find_first_not_of("0123456789") != std::string::npos)
    throw refuse();
  return url;
}

void check_header_value(std::string_view text, std::string_view what) {
  if (std::any_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 0x7f; }))
    throw invalid_argument(fmt::format("{} {}: must not hold control characters", what, quote(text)));
}

}  // namespace quire
