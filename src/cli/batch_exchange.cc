#include "cli/batch_exchange.h"

#include <exception>
#include <utility>

#include "server/json_errors.h"
#include "server/log_failure.h"

namespace quire {

WorkThread::WorkThread() : thread_([this] { work(); }) {}

WorkThread::~WorkThread() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  came_.notify_all();
  thread_.join();
}

void WorkThread::post(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
  }
  came_.notify_one();
}

void WorkThread::wait_until_idle() noexcept {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return queue_.empty() && !busy_; });
}

void WorkThread::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    came_.wait(lock, [this] { return over_ || !queue_.empty(); });
    if (queue_.empty()) return;
    std::function<void()> next = std::move(queue_.front());
    queue_.pop_front();
    busy_ = true;
    lock.unlock();
    try {
      next();
    } catch (const std::exception& error) {  // ends this piece of work, not the other requests
      log_failure("run-batch", error);
    }
    next = nullptr;  // what it holds may post when it goes
    lock.lock();
    busy_ = false;
    if (queue_.empty()) idle_.notify_all();
  }
}

BatchExchange::BatchExchange(HttpRequest request, WorkThread& thread, Done done)
    : request_(std::move(request)), thread_(thread), done_(std::move(done)) {}

BatchExchange::~BatchExchange() {
  if (!done_) return;
  HttpResponse response;
  try {
    response = error_response(500, "Internal Server Error", "the request was dropped");
  } catch (const std::exception&) {  // no memory for the words
    response.status = 500;
  }
  done_(std::move(response));
}

void BatchExchange::respond(HttpResponse response) {
  Done done;
  std::function<void()> owner;  // ends after the lock does: it may hold this exchange
  {
    const std::lock_guard lock(mutex_);
    done = std::exchange(done_, nullptr);
    owner = std::exchange(owner_, nullptr);
  }
  if (done) done(std::move(response));
}

void BatchExchange::begin_stream(HttpResponse head) {
  const std::lock_guard lock(mutex_);
  stream_ = std::move(head);
}

void BatchExchange::write(std::string_view bytes) {
  const std::lock_guard lock(mutex_);
  stream_.body += bytes;
}

void BatchExchange::end_stream() {
  HttpResponse response;
  {
    const std::lock_guard lock(mutex_);
    response = std::move(stream_);
  }
  respond(std::move(response));
}

void BatchExchange::on_disconnect(std::function<void()> callback) {
  const std::lock_guard lock(mutex_);
  if (done_) owner_ = std::move(callback);
}

void BatchExchange::post(std::function<void()> work) { thread_.post(std::move(work)); }

// The engine's thread reports where there is no memory for a wake-up, and wakes again in the next step.
std::function<void()> BatchExchange::make_waker(std::function<void()> work) {
  return [&thread = thread_, work = std::move(work)] { thread.post(work); };
}

}  // namespace quire
