#pragma once
// Drives many requests to one server from one thread, each at its time, over connections that are kept and used again.
// What the measured times mean is the caller's: it gets the bytes of each answer with the moment at which they came.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "client/url.h"

namespace quire {

class LoadClient {
 public:
  using Clock = std::chrono::steady_clock;

  struct Options {
    bool insecure = false;        // any certificate will do
    int64_t max_concurrency = 0;  // requests at work; 0: no limit
    double timeout = 0;           // seconds for one request; 0: no limit
  };

  // All members are called on the thread of run(). A request's are in order: message, begin, then answer and body, and
  // one end.
  class Requests {
   public:
    virtual ~Requests() = default;
    // The whole HTTP/1.1 request, head and body.
    virtual std::string message(size_t index) = 0;
    // It goes out now; it was due at `due`.
    virtual void begin(size_t index, Clock::time_point due, Clock::time_point now) = 0;
    // The head of its answer has come.
    virtual void answer(size_t index, int status, const std::string& reason) = 0;
    // Bytes of the answer's body. An Error that this throws ends the request, with its words.
    virtual void body(size_t index, std::string_view bytes, Clock::time_point now) = 0;
    // The answer is complete, or `error` says why it never will be.
    virtual void end(size_t index, Clock::time_point now, const std::string& error) = 0;
  };

  // Throws Error(kUnavailable) if the host's name can't be resolved.
  LoadClient(const HttpUrl& url, Options options);
  ~LoadClient();
  LoadClient(const LoadClient&) = delete;
  LoadClient& operator=(const LoadClient&) = delete;

  // Sends request i at `due[i]` seconds from now (ascending), later if max_concurrency requests are at work, and
  // returns when all have ended. Connections stay open for the next run. `every_tick` is called ten times a second.
  void run(std::span<const double> due, Requests& requests, const std::function<void()>& every_tick);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire
