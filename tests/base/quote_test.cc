#include "base/quote.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

TEST(Quote, EscapesWhatIsNotText) {
  EXPECT_EQ(quote(""), "\"\"");
  EXPECT_EQ(quote("a\"\\\n\x01\x7F"), "\"a\\\"\\\\\\n\\u0001\\u007f\"");
  EXPECT_EQ(quote("\xE4\xBD\xA0\xF0\x9F\x98\x80"), "\"\xE4\xBD\xA0\xF0\x9F\x98\x80\"");
  EXPECT_EQ(quote("a\xE4\xBD"), "\"a\\xE4\\xBD\"");
  EXPECT_EQ(quote("\xED\xA0\x80\xC0\x80\xF4\x90\x80\x80"), "\"\\xED\\xA0\\x80\\xC0\\x80\\xF4\\x90\\x80\\x80\"");
}

TEST(Quote, CutsBetweenCharacters) {
  EXPECT_EQ(quote("abc", 3), "\"abc\"");
  EXPECT_EQ(quote("abcd", 3), "\"abc\"...");
  EXPECT_EQ(quote("ab\xE4\xBD\xA0", 4), "\"ab\"...");
  EXPECT_EQ(quote(std::string(1000, '\xFF'), 2), "\"\\xFF\\xFF\"...");
}

}  // namespace
}  // namespace quire
