#pragma once
// Requests that come from a file: the exchange through which the server's handlers answer them, and the thread that
// stands in for that of a connection.
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "server/http_types.h"

namespace quire {

// Runs work in order on one thread; an exception of one piece is logged. The destructor runs what is queued first.
class WorkThread {
 public:
  WorkThread();
  ~WorkThread();
  WorkThread(const WorkThread&) = delete;
  WorkThread& operator=(const WorkThread&) = delete;
  void post(std::function<void()> work);
  // Returns once all that was posted has run and is destroyed. Not for the thread itself.
  void wait_until_idle() noexcept;

 private:
  void work();
  std::mutex mutex_;
  std::condition_variable came_, idle_;
  std::deque<std::function<void()>> queue_;
  bool over_ = false, busy_ = false;
  std::thread thread_;
};

class BatchExchange final : public HttpExchange {
 public:
  // done is called once, on any thread: with the answer, or with status 500 if the exchange is dropped without one. It
  // must not throw.
  using Done = std::function<void(HttpResponse)>;
  BatchExchange(HttpRequest request, WorkThread& thread, Done done);
  ~BatchExchange() override;

  const HttpRequest& request() const override { return request_; }
  std::string take_body() override { return std::move(request_.body); }
  void respond(HttpResponse response) override;
  void begin_stream(HttpResponse head) override;
  void write(std::string_view bytes) override;
  void end_stream() override;
  void on_disconnect(std::function<void()> callback) override;
  void post(std::function<void()> work) override;
  std::function<void()> make_waker(std::function<void()> work) override;

 private:
  HttpRequest request_;
  WorkThread& thread_;
  std::mutex mutex_;
  Done done_;                    // empty: it has been called
  std::function<void()> owner_;  // what the handler wants kept until the answer ends
  HttpResponse stream_;
};

}  // namespace quire
