#pragma once
// A small blocking HTTP/1.1 client, enough to talk to an OpenAI-shaped server: http and https (certificates checked),
// one connection for each request, bodies whole or event by event as they come.
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "client/url.h"

namespace quire {

class HttpClient {
 public:
  struct Options {
    std::string bearer_token;                                  // empty: none is sent
    std::vector<std::pair<std::string, std::string>> headers;  // more of them
    bool insecure = false;                                     // any certificate will do
    double timeout = 0;                  // seconds to connect, and for one read or write; 0: no limit
    size_t max_body = size_t{64} << 20;  // bytes of a whole answer
  };
  struct Answer {
    int status = 0;
    std::string body;
  };

  // Throws Error(kInvalidArgument) if a header can't be sent.
  HttpClient(HttpUrl url, Options options);

  // The answer to a request for url + path, whatever its status. `body` is sent as JSON unless it is empty. Throws
  // Error(kUnavailable) if the server can't be reached or breaks off.
  Answer request(std::string_view method, const std::string& path, std::string_view body = {},
                 std::string_view content_type = "application/json") const;

  // As request(), and throws for any status but 2xx: kInvalidArgument with the server's own message for 4xx, else
  // kInternal. post_stream() calls on_event with the data of each server-sent event until "[DONE]" or the end.
  std::string get(const std::string& path) const;
  std::string post(const std::string& path, std::string_view body) const;
  void post_stream(const std::string& path, const std::string& body,
                   const std::function<void(std::string_view data)>& on_event) const;

  std::string url_of(const std::string& path) const { return url_.text() + path; }

 private:
  class Connection;
  std::string request_head(std::string_view method, const std::string& path, size_t body_bytes,
                           std::string_view content_type) const;
  std::string checked(const std::string& path, Answer answer) const;

  HttpUrl url_;
  Options options_;
};

// A server's own words for what is wrong: {"error": {"message": ...}}, {"message": ...}, else the start of the body.
std::string error_message_of(const std::string& body);

}  // namespace quire
