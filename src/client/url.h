#pragma once
// Where a server is: the parts of an http or https URL.
#include <string>
#include <string_view>

namespace quire {

struct HttpUrl {
  bool tls = false;
  std::string host, port;  // host without the brackets of an IPv6 address
  std::string path;        // begins with '/' or is empty; never ends with '/'

  std::string authority() const;  // "host:port", the host in brackets if it has colons
  std::string text() const;       // "http://host:port/path"
};

// Throws Error(kInvalidArgument) naming `flag` and the text if it is no such URL.
HttpUrl parse_http_url(std::string_view text, std::string_view flag);

// Throws Error(kInvalidArgument) naming `what` if text can't be the value of a header: it has a space or control
// character where none may be.
void check_header_value(std::string_view text, std::string_view what);

}  // namespace quire
