#pragma once
// HTTP/1.1 over TCP or a Unix socket, with TLS if there is a certificate: connections, limits, time-outs. Handlers see
// requests and exchanges only (http_types.h).
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "server/config.h"
#include "server/http_types.h"

namespace quire {

class HttpServer {
 public:
  // Reads the TLS files and binds the address. Throws Error(kInvalidArgument) that names the file, Error(kUnavailable)
  // that names the address if that can't be done.
  // The handler is called on a worker thread for a request with a body, else on the connection's own thread; what it
  // throws becomes an error answer.
  HttpServer(ServerConfig config, HttpHandler handler);
  ~HttpServer();  // stop(0)
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Listens and starts the threads. Throws as the constructor.
  void start();
  // Takes no new connections, closes idle ones, and gives the others that long to end their answers. Idempotent.
  void stop(std::chrono::milliseconds grace);

  uint16_t port() const;        // 0 for a Unix socket
  std::string address() const;  // "http://127.0.0.1:8000", "https://...", "unix:/path"

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire
