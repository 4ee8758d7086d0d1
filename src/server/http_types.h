#pragma once
// Requests and responses as handlers see them, and the exchange through which a handler answers. Nothing here knows of
// sockets.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace quire {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method, path, query;  // path as sent, without the query
  HttpHeaders headers;              // names as sent
  std::string body;
  std::string peer;  // "127.0.0.1:1234", or "unix"

  // The value of the first header of that name, whatever its case; empty if there is none.
  std::string_view header(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string content_type;  // empty = no such header
  std::string body;
  HttpHeaders headers;  // more of them
};

// "Not Found" for 404.
std::string_view status_phrase(int status);

// One request and the way to answer it. Every member may be called on any thread; work on the answer runs on the
// connection's own thread. Exactly one of respond() and begin_stream() .. end_stream() is to be called; an exchange
// that is dropped without an answer gives 500. Calls after the client has gone do nothing.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;
  virtual const HttpRequest& request() const = 0;
  virtual std::string take_body() = 0;  // moves request().body out; once, before the answer begins

  virtual void respond(HttpResponse response) = 0;

  // An answer in pieces: `head.body` must be empty. A client that leaves more than ServerConfig::max_write_buffer
  // unread is dropped.
  virtual void begin_stream(HttpResponse head) = 0;
  virtual void write(std::string_view bytes) = 0;
  virtual void end_stream() = 0;

  // Called once on the connection's thread when the client goes away before the end of the answer (at once if it has
  // gone); dropped when the answer ends.
  virtual void on_disconnect(std::function<void()> callback) = 0;
  // Runs work on the connection's thread, one at a time and in order. Never blocks.
  virtual void post(std::function<void()> work) = 0;
  // What runs `work` on the connection's thread when it is called, on any thread. Calls that come before the work has
  // begun are one. Calling it allocates nothing, throws nothing, and is cheap if many connections are woken at once;
  // the work is not in order with what other threads post.
  virtual std::function<void()> make_waker(std::function<void()> work) = 0;
};

using HttpHandler = std::function<void(std::shared_ptr<HttpExchange>)>;

// The path without a proxy's prefix; as it is if it has none.
std::string_view path_below(std::string_view root_path, std::string_view path);
// Whether two header names or values are equal but for ASCII case.
bool equal_ignoring_case(std::string_view a, std::string_view b);

}  // namespace quire
