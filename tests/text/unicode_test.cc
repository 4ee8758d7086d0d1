#include "text/unicode.h"

#include <gtest/gtest.h>

#include "text/graphemes.h"
#include "text/normalization_forms.h"
#include "tokenizer_test_data.h"

namespace quire {
namespace {

const std::string kReplacement = "\xEF\xBF\xBD";

std::string lossy(std::string_view bytes) {
  std::string out;
  EXPECT_EQ(append_lossy_utf8(out, bytes), 0u);
  return out;
}

std::string replaced(int count) {
  std::string text;
  while (count-- > 0) text += kReplacement;
  return text;
}

TEST(Unicode, ReplacesEachMaximalSubpart) {
  EXPECT_EQ(lossy("a\x80z"), "a" + replaced(1) + "z");
  EXPECT_EQ(lossy("\xC0\xAF"), replaced(2));          // overlong
  EXPECT_EQ(lossy("\xE0\x80\xAF"), replaced(3));      // overlong: E0 takes no 80
  EXPECT_EQ(lossy("\xED\xA0\x80"), replaced(3));      // surrogate
  EXPECT_EQ(lossy("\xF0\x80\x80\xAF"), replaced(4));  // overlong
  EXPECT_EQ(lossy("\xF4\x90\x80\x80"), replaced(4));  // past U+10FFFF
  EXPECT_EQ(lossy("\xF5\xFF\xFE"), replaced(3));
  EXPECT_EQ(lossy("\xE1\x80"
                  "A"),
            replaced(1) + "A");
  EXPECT_EQ(lossy("\xF1\x80\x80\xE1\x80\xC2"
                  "A"),
            replaced(3) + "A");
  EXPECT_EQ(lossy("\xF0\x9F\x98"), replaced(1));
  EXPECT_EQ(lossy("\xF0\x9F\x98\x80"), "\xF0\x9F\x98\x80");
  EXPECT_EQ(lossy(std::string_view("\0\x7F", 2)), std::string_view("\0\x7F", 2));
}

TEST(Unicode, KeepsWhatMoreBytesCouldComplete) {
  std::string out;
  EXPECT_EQ(append_lossy_utf8(out, "x\xF0\x9F\x98", true), 3u);
  EXPECT_EQ(append_lossy_utf8(out, "\xE4", true), 1u);
  EXPECT_EQ(append_lossy_utf8(out, "\xE0\xA0", true), 2u);
  EXPECT_EQ(out, "x");
  EXPECT_EQ(append_lossy_utf8(out, "\xE0\x80", true), 0u);  // nothing completes E0 80
  EXPECT_EQ(append_lossy_utf8(out, "\xFF", true), 0u);
  EXPECT_EQ(out, "x" + replaced(3));
}

TEST(Unicode, LossyTextIsValidWhateverTheBytes) {
  std::mt19937 rng(1);
  for (int i = 0; i < 20000; ++i) {
    std::string bytes;
    for (size_t n = rng() % 12; n > 0; --n) bytes += static_cast<char>(rng() % 3 == 0 ? rng() : 0x80 + rng() % 0x80);
    const std::string text = lossy(bytes);
    ASSERT_TRUE(is_valid_utf8(text));
    if (is_valid_utf8(bytes)) {
      ASSERT_EQ(text, bytes);
    }
  }
}

TEST(Unicode, DecodesAndEncodesEveryScalarValue) {
  for (char32_t code = 0; code <= 0x10FFFF; ++code) {
    if (code >= 0xD800 && code < 0xE000) continue;
    std::string text;
    append_utf8(text, code);
    const char* p = text.data();
    ASSERT_EQ(decode_valid_utf8(p), code);
    ASSERT_EQ(p, text.data() + text.size());
    ASSERT_EQ(previous_character(text.data(), p), text.data());
  }
}

TEST(Unicode, Classes) {
  const CharTable& table = CharTable::get();
  EXPECT_EQ(table['a'], kLower);
  EXPECT_EQ(table['Z'], kUpper);
  EXPECT_EQ(table['7'], kNumber);
  EXPECT_EQ(table['_'], kPunctuation);
  EXPECT_EQ(table['$'], kSymbol);
  EXPECT_EQ(table[' '], kSpace);
  EXPECT_EQ(table['\n'], kSpace);
  EXPECT_EQ(table[0x85], kSpace);
  EXPECT_EQ(table[0x1C], 0);    // Python calls it a space, \s does not
  EXPECT_EQ(table[0x200B], 0);  // format character
  EXPECT_EQ(table[0x3000], kSpace);
  EXPECT_EQ(table[0x1C5], kUpper);  // title case
  EXPECT_EQ(table[0x2B0], kOtherLetter);
  EXPECT_EQ(table[0x4E00], kOtherLetter);
  EXPECT_EQ(table[0x301], kMark);
  EXPECT_EQ(table[0x2167], kNumber);
  EXPECT_EQ(table[0x1F600], kSymbol);
  EXPECT_EQ(table[0x1C89], kUpper);  // new in Unicode 16
  EXPECT_EQ(table[0x10FFFF], 0);
  size_t letters = 0, spaces = 0;
  for (char32_t code = 0; code <= 0x10FFFF; ++code) {
    letters += (table[code] & kLetter) != 0;
    spaces += (table[code] & kSpace) != 0;
  }
  EXPECT_EQ(letters, 141028u);
  EXPECT_EQ(spaces, 25u);
}

TEST(Unicode, NormalizationForms) {
  constexpr NormalizationForm kForms[] = {NormalizationForm::kC, NormalizationForm::kD, NormalizationForm::kKc,
                                          NormalizationForm::kKd};
  std::string buffer;
  for (const auto& row : testing::read_json_data("unicode_forms_golden.json")) {
    const auto text = row[0].get<std::string>();
    for (size_t i = 0; i < std::size(kForms); ++i) {
      const auto expected = row[i + 1].get<std::string>();
      EXPECT_EQ(normalize(text, kForms[i], buffer), expected) << text;
      EXPECT_EQ(normalize("7" + text + "8" + text, kForms[i], buffer), "7" + expected + "8" + expected);
    }
  }
  const std::string plain = "caf\xC3\xA9 \xE4\xBD\xA0\xE5\xA5\xBD";
  EXPECT_EQ(normalize(plain, NormalizationForm::kC, buffer).data(), plain.data())
      << "text in form C should not be copied";
}

TEST(Unicode, GraphemeClusters) {
  const auto clusters = [](std::string_view text) {
    std::vector<std::string> out;
    for (const char *p = text.data(), *end = p + text.size(); p < end;) {
      const char* next = grapheme_end(p, end);
      out.emplace_back(p, next);
      p = next;
    }
    return out;
  };
  using Clusters = std::vector<std::string>;
  EXPECT_EQ(clusters("ab\r\n\n"), (Clusters{"a", "b", "\r\n", "\n"}));
  EXPECT_EQ(clusters("e\u0301\u0323x"), (Clusters{"e\u0301\u0323", "x"}));
  EXPECT_EQ(clusters("e\u05C7\u05C8"), (Clusters{"e\u05C7", "\u05C8"}));  // unassigned in Unicode 16
  EXPECT_EQ(clusters("\u1100\u1161\u11A8\uAC00\u11A8"), (Clusters{"\u1100\u1161\u11A8", "\uAC00\u11A8"}));
  EXPECT_EQ(clusters("\U0001F469\U0001F3FF\u200D\U0001F680a\u200D"),
            (Clusters{"\U0001F469\U0001F3FF\u200D\U0001F680", "a\u200D"}));
  EXPECT_EQ(clusters("\U0001F1E9\U0001F1EA\U0001F1EB"), (Clusters{"\U0001F1E9\U0001F1EA", "\U0001F1EB"}));
}

}  // namespace
}  // namespace quire
