#include "base/memory_reserve.h"

#include <gtest/gtest.h>

#include <new>

namespace quire {
namespace {

// The handler is what operator new calls when it has found no memory.
TEST(MemoryReserve, IsGivenBackOnceAndFilledAgain) {
  const std::new_handler before = std::get_new_handler();
  {
    MemoryReserve reserve(1 << 16);
    EXPECT_TRUE(reserve.full());
    const std::new_handler handler = std::get_new_handler();
    ASSERT_NE(handler, nullptr);
    EXPECT_NO_THROW(handler());
    EXPECT_FALSE(reserve.full());
    EXPECT_THROW(handler(), std::bad_alloc);
    reserve.refill();
    EXPECT_TRUE(reserve.full());
    EXPECT_NO_THROW(handler());
    EXPECT_THROW(handler(), std::bad_alloc);
  }
  EXPECT_EQ(std::get_new_handler(), before);
}

}  // namespace
}  // namespace quire
