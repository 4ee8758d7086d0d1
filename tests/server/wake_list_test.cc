// Wake-ups across threads: none is lost, many are one, and what one piece of work throws does not stop the next.
#include "server/wake_list.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

namespace quire {
namespace {

using namespace std::chrono_literals;

TEST(WakeList, WakeUpsBeforeTheWorkAreOne) {
  WakeList list;
  std::vector<int> order;
  const auto entry = [&](int number) {
    return std::make_shared<WakeList::Entry>([&order, number] { order.push_back(number); });
  };
  const auto a = entry(1), b = entry(2);
  for (int i = 0; i < 3; ++i) {
    list.wake(a);
    list.wake(b);
  }
  list.run();
  EXPECT_EQ(order, (std::vector{1, 2}));
  list.run();
  EXPECT_EQ(order.size(), 2u);
  list.wake(b);
  list.run();
  EXPECT_EQ(order, (std::vector{1, 2, 2}));
}

TEST(WakeList, WorkMayThrowAndWakeItself) {
  WakeList list;
  int calls = 0;
  std::shared_ptr<WakeList::Entry> again;
  again = std::make_shared<WakeList::Entry>([&] {
    if (++calls == 1) list.wake(again);
  });
  const auto bad = std::make_shared<WakeList::Entry>([] { throw std::runtime_error("on purpose"); });
  list.wake(bad);
  list.wake(again);
  list.run();
  EXPECT_EQ(calls, 1);
  list.run();
  EXPECT_EQ(calls, 2);
  again->work = nullptr;
}

TEST(WakeList, WhatIsLeftGoesWithTheList) {
  auto held = std::make_shared<int>(1);
  {
    WakeList list;
    list.wake(std::make_shared<WakeList::Entry>([held] {}));
    EXPECT_EQ(held.use_count(), 2);
  }
  EXPECT_EQ(held.use_count(), 1);
}

// Four threads count up and wake; after the last wake-up each count has been seen.
TEST(WakeList, NothingIsLostBetweenThreads) {
  boost::asio::io_context context{1};
  const auto list = std::make_shared<WakeList>();
  WakeListRunner runner(context, list);
  runner.start();
  auto guard = boost::asio::make_work_guard(context);
  std::thread loop([&] { context.run(); });

  constexpr int kThreads = 4, kWakes = 20'000;
  std::array<std::atomic<int>, kThreads> said{}, seen{};
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      const auto entry = std::make_shared<WakeList::Entry>([&, i] { seen[i] = said[i].load(); });
      for (int k = 0; k < kWakes; ++k) {
        ++said[i];
        list->wake(entry);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto deadline = std::chrono::steady_clock::now() + 5s;
  for (size_t i = 0; i < kThreads; ++i) {
    while (seen[i] != kWakes && std::chrono::steady_clock::now() < deadline) std::this_thread::sleep_for(1ms);
    EXPECT_EQ(seen[i], kWakes);
  }
  guard.reset();
  context.stop();
  loop.join();
}

}  // namespace
}  // namespace quire
