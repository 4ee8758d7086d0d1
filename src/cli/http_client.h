#pragma once
// A small blocking HTTP/1.1 client, enough to talk to an OpenAI-shaped server: http and https (certificates checked),
// one connection for each request, bodies whole or line by line as they come.
#include <functional>
#include <string>
#include <string_view>

namespace quire {

class HttpClient {
 public:
  // base_url: "http://host[:port]/v1"; an empty bearer_token sends none. Throws Error(kInvalidArgument) naming the URL.
  HttpClient(const std::string& base_url, std::string bearer_token);

  // Body of GET base_url + path. Throws Error: kUnavailable if the server can't be reached or breaks off;
  // kInvalidArgument with the server's own message for an answer 4xx, kInternal for others.
  std::string get(const std::string& path) const;

  // POSTs JSON and calls on_event with the data of each server-sent event until "[DONE]" or the end. Errors as get().
  void post_stream(const std::string& path, const std::string& body,
                   const std::function<void(std::string_view data)>& on_event) const;

  const std::string& base_url() const { return base_url_; }

 private:
  class Connection;
  std::string request_head(std::string_view method, const std::string& path, size_t body_bytes) const;

  std::string base_url_, host_, port_, prefix_, bearer_token_;
  bool tls_ = false;
};

}  // namespace quire
