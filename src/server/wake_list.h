#pragma once
// How other threads tell an io_context that work is there, without allocating, locking or failing: the engine thread
// does it for every stream in every step. Many wake-ups are one write to an eventfd.
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <functional>
#include <memory>

namespace quire {

class WakeList {
 public:
  // Throws std::system_error if there is no descriptor left.
  WakeList();
  ~WakeList();
  WakeList(const WakeList&) = delete;
  WakeList& operator=(const WakeList&) = delete;

  // A call to be made again and again, one at a time; wake-ups that come before it is made are one.
  struct Entry {
    explicit Entry(std::function<void()> call) : work(std::move(call)) {}
    std::function<void()> work;

   private:
    friend class WakeList;
    std::atomic<bool> woken{false};
    std::shared_ptr<Entry> self;  // while it is in the list
    Entry* next = nullptr;
  };
  // Any thread. The work is done by the thread that calls run().
  void wake(const std::shared_ptr<Entry>& entry) noexcept;

  // Does the work of what was woken, oldest first. What a piece of work throws is logged, and the others go on.
  void run() noexcept;
  int descriptor() const { return event_; }  // readable while there is work

 private:
  Entry* take_all() noexcept;  // oldest first

  std::atomic<Entry*> newest_{nullptr};
  int event_;
};

// Calls run() on the context's thread whenever there is work, until the context ends.
class WakeListRunner {
 public:
  WakeListRunner(boost::asio::io_context& context, std::shared_ptr<WakeList> list);
  void start();

 private:
  std::shared_ptr<WakeList> list_;
  boost::asio::posix::stream_descriptor event_;
};

}  // namespace quire
