#include "text/detokenizer.h"

#include <gtest/gtest.h>

#include <map>

#include "tokenizer_test_data.h"

namespace quire {
namespace {

// Tokens with given bytes; ids from 100 on are special.
class FakeTokenizer final : public Tokenizer {
 public:
  explicit FakeTokenizer(std::vector<std::string> tokens) : tokens_(std::move(tokens)) {}
  std::vector<int32_t> encode(std::string_view, bool) const override { return {}; }
  std::string decode(std::span<const int32_t>, bool) const override { return {}; }
  std::string_view token_bytes(int32_t id) const override {
    if (id >= 100) return "<s>";
    return id >= 0 && id < vocab_size() ? std::string_view(tokens_[static_cast<size_t>(id)]) : std::string_view();
  }
  std::string_view token_string(int32_t id) const override { return token_bytes(id); }
  bool is_special(int32_t id) const override { return id >= 100; }
  int32_t token_id(std::string_view) const override { return -1; }
  int32_t vocab_size() const override { return static_cast<int32_t>(tokens_.size()); }
  int32_t bos_id() const override { return -1; }
  int32_t eos_id() const override { return -1; }

 private:
  std::vector<std::string> tokens_;
};

const std::string kReplacement = "\xEF\xBF\xBD";

TEST(Detokenizer, HoldsBackHalfCharacters) {
  const FakeTokenizer tokenizer({"ok", "\xF0\x9F", "\x98", "\x80!", "\xE5", "x"});
  Detokenizer text(tokenizer, {});
  text.push(0);
  EXPECT_EQ(text.take(), "ok");
  text.push(1);
  EXPECT_EQ(text.take(), "");
  text.push(2);
  EXPECT_EQ(text.take(), "");
  text.push(3);
  EXPECT_EQ(text.take(), "\xF0\x9F\x98\x80!");
  text.push(4);
  text.push(5);  // breaks the character that began
  EXPECT_EQ(text.take(), kReplacement + "x");
  text.push(1);
  text.finish();
  EXPECT_EQ(text.take(), kReplacement);
  EXPECT_EQ(text.text(), "ok\xF0\x9F\x98\x80!" + kReplacement + "x" + kReplacement);
}

TEST(Detokenizer, SpecialTokensAreSkippedOrShown) {
  const FakeTokenizer tokenizer({"a", "\xC3", "\xA9"});
  Detokenizer skipping(tokenizer, {});
  Detokenizer showing(tokenizer, {.skip_special_tokens = false});
  for (const int32_t id : {0, 100, 1, 100, 2, 50, -1}) {
    skipping.push(id);
    showing.push(id);
  }
  EXPECT_EQ(skipping.text(), "a\xC3\xA9");
  EXPECT_EQ(showing.text(), "a<s>" + kReplacement + "<s>" + kReplacement);
}

TEST(Detokenizer, FindsStopStringsAcrossTokens) {
  const FakeTokenizer tokenizer({"Quest", "ion", ":", " yes", "<|im_e", "nd|> more"});
  Detokenizer text(tokenizer, {.stop = {"Question:", "<|im_end|>"}});
  for (const int32_t id : {0, 1, 3, 4}) EXPECT_EQ(text.push(id), std::nullopt);
  EXPECT_EQ(text.push(5), 1u);
  EXPECT_EQ(text.text(), "Question yes");
  EXPECT_EQ(text.take(), "Question yes");
  EXPECT_EQ(text.push(0), std::nullopt) << "nothing comes after a stop";
  text.finish();
  EXPECT_EQ(text.text(), "Question yes");
}

TEST(Detokenizer, EarliestEndWinsThenListOrder) {
  const FakeTokenizer tokenizer({"abcdef"});
  const auto stop_of = [&](std::vector<std::string> stop) {
    Detokenizer text(tokenizer, {.stop = std::move(stop)});
    const auto index = text.push(0);
    return std::pair(index, text.text());
  };
  using Result = std::pair<std::optional<size_t>, std::string>;
  EXPECT_EQ(stop_of({"abcde", "cd"}), Result(1, "ab"));  // ends first, though it starts later
  EXPECT_EQ(stop_of({"bcd", "cd"}), Result(0, "a"));     // both end at d
  EXPECT_EQ(stop_of({"cd", "bcd"}), Result(0, "ab"));
  EXPECT_EQ(stop_of({"", "f"}), Result(1, "abcde"));  // an empty one never stops
  EXPECT_EQ(stop_of({"g", "a"}), Result(1, ""));
}

TEST(Detokenizer, IncludesStopString) {
  const FakeTokenizer tokenizer({"one ", "STOP", " two"});
  Detokenizer text(tokenizer, {.stop = {"TO"}, .include_stop_string = true});
  text.push(0);
  EXPECT_EQ(text.take(), "one ") << "nothing needs to be held back";
  EXPECT_EQ(text.push(1), 0u);
  EXPECT_EQ(text.text(), "one STO");
  EXPECT_EQ(text.take(), "STO");
}

TEST(Detokenizer, StopStringsCountAfterMinTokens) {
  const FakeTokenizer tokenizer({"x", "ab"});
  Detokenizer text(tokenizer, {.stop = {"x", "bx"}, .min_tokens = 2});
  EXPECT_EQ(text.push(0), std::nullopt);
  EXPECT_EQ(text.push(1), std::nullopt);
  EXPECT_EQ(text.push(0), 0u);
  EXPECT_EQ(text.text(), "xab");
  Detokenizer across(tokenizer, {.stop = {"bx"}, .min_tokens = 2});  // begins within the first two, ends after
  across.push(0);
  across.push(1);
  EXPECT_EQ(across.push(0), 0u);
  EXPECT_EQ(across.text(), "xa");
}

TEST(Detokenizer, HoldsBackWhatCouldBecomeAStop) {
  const FakeTokenizer tokenizer(
      {"a\xC3\xA9"
       "b",
       "cdefg"});
  Detokenizer text(tokenizer, {.stop = {"123"}});
  text.push(0);
  EXPECT_EQ(text.take(), "a") << "two bytes back is the middle of a character";
  text.push(1);
  EXPECT_EQ(text.take(),
            "\xC3\xA9"
            "bcde");
  text.finish();
  EXPECT_EQ(text.take(), "fg");
}

// Against the plain way to do it, for random tokens over two letters.
TEST(Detokenizer, AgreesWithSearchOfTheWholeText) {
  std::mt19937 rng(3);
  const auto random_word = [&](size_t longest) {
    std::string word;
    for (size_t n = 1 + rng() % longest; n > 0; --n) word += "ab"[rng() % 2];
    return word;
  };
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::string> tokens, stop;
    for (int i = 0; i < 4; ++i) tokens.push_back(random_word(3));
    for (size_t n = 1 + rng() % 3; n > 0; --n) stop.push_back(random_word(7));
    const int64_t min_tokens = rng() % 4;
    const bool include = rng() % 2 == 0;
    const FakeTokenizer tokenizer(tokens);
    Detokenizer text(tokenizer, {.stop = stop, .include_stop_string = include, .min_tokens = min_tokens});
    std::string whole, taken;
    for (int64_t n = 1; n <= 12; ++n) {
      const auto id = static_cast<int32_t>(rng() % tokens.size());
      const size_t before = whole.size();
      whole += tokens[static_cast<size_t>(id)];
      std::optional<size_t> expected;
      for (size_t end = before + 1; end <= whole.size() && !expected && n > min_tokens; ++end) {
        for (size_t i = 0; i < stop.size() && !expected; ++i) {
          if (end < stop[i].size() || whole.compare(end - stop[i].size(), stop[i].size(), stop[i]) != 0) continue;
          expected = i;
          whole.resize(include ? end : end - stop[i].size());
        }
      }
      ASSERT_EQ(text.push(id), expected);
      taken += text.take();
      ASSERT_TRUE(whole.starts_with(taken));
      if (expected) break;
      ASSERT_EQ(text.text(), whole);
    }
    text.finish();
    taken += text.take();
    ASSERT_EQ(text.text(), whole);
    ASSERT_EQ(taken, whole);
  }
}

}  // namespace
}  // namespace quire
