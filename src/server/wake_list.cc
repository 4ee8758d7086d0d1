#include "server/wake_list.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <exception>
#include <system_error>
#include <utility>

#include "server/insist.h"
#include "server/log_failure.h"

namespace quire {

WakeList::WakeList() : event_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (event_ < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
}

WakeList::~WakeList() {
  for (Entry* entry = take_all(); entry != nullptr;) {
    const std::shared_ptr<Entry> last = std::exchange(entry->self, nullptr);
    entry = last->next;
  }
  close(event_);
}

void WakeList::wake(const std::shared_ptr<Entry>& entry) noexcept {
  if (entry->woken.exchange(true, std::memory_order_acq_rel)) return;
  entry->self = entry;
  Entry* head = newest_.load(std::memory_order_relaxed);
  do {
    entry->next = head;
  } while (!newest_.compare_exchange_weak(head, entry.get(), std::memory_order_acq_rel, std::memory_order_relaxed));
  if (head != nullptr) return;  // who put the first one in has said so
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(event_, &one, sizeof one);  // fails only when it is readable anyway
}

WakeList::Entry* WakeList::take_all() noexcept {
  Entry* oldest = nullptr;
  for (Entry* entry = newest_.exchange(nullptr, std::memory_order_acq_rel); entry != nullptr;) {
    Entry* const next = std::exchange(entry->next, oldest);
    oldest = std::exchange(entry, next);
  }
  return oldest;
}

void WakeList::run() noexcept {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t bytes = read(event_, &count, sizeof count);
  for (Entry* entry = take_all(); entry != nullptr;) {
    const std::shared_ptr<Entry> alive = std::exchange(entry->self, nullptr);
    entry = alive->next;
    alive->woken.store(false, std::memory_order_release);  // before the work: what comes after that is another wake-up
    try {
      alive->work();
    } catch (const std::exception& error) {
      log_failure("http", error);
    }
  }
}

WakeListRunner::WakeListRunner(boost::asio::io_context& context, std::shared_ptr<WakeList> list)
    : list_(std::move(list)), event_(context) {
  const int copy = dup(list_->descriptor());
  if (copy < 0) throw std::system_error(errno, std::generic_category(), "dup");
  event_.assign(copy);
}

void WakeListRunner::start() {
  insist([this] {
    event_.async_wait(boost::asio::posix::stream_descriptor::wait_read, [this](boost::system::error_code error) {
      if (error) return;
      list_->run();
      start();
    });
  });
}

}  // namespace quire
