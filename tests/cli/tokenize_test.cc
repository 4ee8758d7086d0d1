// quire tokenize and quire detokenize, on the small tokenizers of the test data.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <tuple>
#include <vector>

#include "cli/process.h"

namespace quire {
namespace {

const std::string kSmall = QUIRE_TEST_DATA "/text/tokenizer_small.json";
const std::string kSentencePiece = QUIRE_TEST_DATA "/text/tokenizer_sentencepiece.json";
const std::string kBert = QUIRE_TEST_DATA "/text/tokenizer_bert.json";
const std::string kBpeModel = QUIRE_TEST_DATA "/text/bpe.model";

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// A file that is gone with the test.
class TextFile {
 public:
  TextFile(const std::string& name, const std::string& text)
      : path_(std::filesystem::path(::testing::TempDir()) / (std::to_string(getpid()) + name)) {
    std::ofstream(path_, std::ios::binary) << text;
  }
  TextFile(const TextFile&) = delete;
  TextFile& operator=(const TextFile&) = delete;
  ~TextFile() { std::filesystem::remove(path_); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

TEST(CliTokenize, PiecesWithIds) {
  const Outcome outcome = run_quire({"tokenize", "--model", kSmall}, "the\n\xC3\xA9\"<|im_end|>");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  EXPECT_TRUE(has(outcome.out, " \"\\n\"\n")) << outcome.out;
  EXPECT_TRUE(has(outcome.out, " \"\\\"\"\n")) << outcome.out;
  EXPECT_TRUE(has(outcome.out, "      2 \"<|im_end|>\"\n")) << outcome.out;
  // Of a character that no token holds whole each byte is shown.
  EXPECT_TRUE(has(run_quire({"tokenize", "--model", kSmall}, "\xE4\xBD\xA0").out, " \"\\xE4\"\n"));
}

TEST(CliTokenize, IdsAndBack) {
  const std::string text = " the theme\r\n \xE4\xBD\xA0\xE5\xA5\xBD <|im_start|>x\t";
  const Outcome ids = run_quire({"tokenize", "--model", kSmall, "--ids"}, text);
  EXPECT_EQ(ids.code, 0) << ids.err;
  EXPECT_TRUE(ids.out.starts_with("[") && ids.out.ends_with("]\n")) << ids.out;
  EXPECT_EQ(run_quire({"detokenize", "--model", kSmall}, ids.out).out, text);
  EXPECT_FALSE(has(run_quire({"detokenize", "--model", kSmall, "--skip-special-tokens"}, ids.out).out, "im_start"));
  EXPECT_EQ(run_quire({"tokenize", "--model", kSmall, "--ids"}, "").out, "[]\n");
  EXPECT_EQ(run_quire({"detokenize", "--model", kSmall}, "").out, "");
  EXPECT_EQ(run_quire({"detokenize", "--model", kSmall}, "1 2\n2").out, "<|im_start|><|im_end|><|im_end|>");
}

TEST(CliTokenize, SpecialTokens) {
  EXPECT_EQ(run_quire({"tokenize", "--model", kSentencePiece, "--ids"}, "").out, "[1]\n");
  EXPECT_EQ(run_quire({"tokenize", "--model", kSentencePiece, "--ids", "--no-add-special-tokens"}, "").out, "[]\n");
  EXPECT_EQ(run_quire({"tokenize", "--tokenizer", kBert, "--ids"}, "").out, "[2, 3]\n");
  EXPECT_EQ(run_quire({"tokenize", "--model", kBpeModel, "--ids"}, "").out, "[1]\n");
  const Outcome twice = run_quire({"tokenize", "--model", kBpeModel, "--ids"}, "<s>");
  EXPECT_EQ(twice.out, "[1, 1]\n");
  EXPECT_TRUE(has(twice.err, "begins with <s>")) << twice.err;
  const Outcome once = run_quire({"tokenize", "--model", kBpeModel, "--ids", "--no-add-special-tokens"}, "<s>");
  EXPECT_EQ(once.out, "[1]\n");
  EXPECT_EQ(once.err, "");
}

TEST(CliTokenize, FilesAndCounts) {
  const TextFile one("one.txt", "the"), empty("empty.txt", "");
  const std::vector<std::string> args = {"tokenize", "--model", kBert, "--count", one.path(), empty.path(), "-"};
  EXPECT_EQ(run_quire(args, "\xE4\xBD\xA0 the").out, "3\n2\n4\n");
  EXPECT_EQ(run_quire({"tokenize", "--model", kBert, "--count", "--ids", empty.path()}).out, "[2, 3]\n2\n");
  const TextFile ids("ids.json", "[2, 3]");
  EXPECT_EQ(run_quire({"detokenize", "--model", kBert, ids.path(), ids.path()}).out, "[CLS] [SEP][CLS] [SEP]");
}

TEST(CliTokenize, WhatIsLostIsSaid) {
  const std::string zero("a\0b", 3);
  const Outcome whole = run_quire({"tokenize", "--model", kSmall, "--count"}, zero);
  EXPECT_EQ(whole.out, "3\n");
  EXPECT_EQ(whole.err, "");
  const Outcome broken = run_quire({"tokenize", "--model", kSmall, "--ids"}, "a\xFF");
  EXPECT_EQ(broken.code, 0);
  EXPECT_TRUE(has(broken.err, "not UTF-8")) << broken.err;
  EXPECT_EQ(broken.out, run_quire({"tokenize", "--model", kSmall, "--ids"}, "a\xEF\xBF\xBD").out);
}

TEST(CliTokenize, ErrorsAreOneLineAndEndWithTwo) {
  const TextFile broken("tokenizer.json", R"({"model":{"type":"Magic","vocab":{}}})");
  const std::tuple<std::vector<std::string>, const char*, const char*> cases[] = {
      {{"tokenize", "--model", "/nonexistent"}, "", "/nonexistent"},
      {{"tokenize", "--model", kSmall, "/nonexistent.txt"}, "", "/nonexistent.txt"},
      {{"tokenize", "--model", broken.path()}, "", "type \"Magic\" is not supported"},
      {{"tokenize", "--model", QUIRE_TEST_DATA}, "", "has no tokenizer"},
      {{"tokenize", "--id"}, "", "unknown option --id"},
      {{"detokenize", "--model", kSmall}, "[1, x]", "\"x\" is no token id"},
      {{"detokenize", "--model", kSmall}, "-1", "\"-1\" is no token id"},
      {{"detokenize", "--model", kSmall}, "1.5", "\"1.5\" is no token id"},
      {{"detokenize", "--model", kSmall}, "99999999999", "\"99999999999\" is no token id"},
      {{"detokenize", "--model", kSmall}, "4000", "4000 is out of range"},
  };
  for (const auto& [args, input, message] : cases) {
    const Outcome outcome = run_quire(args, input);
    EXPECT_EQ(outcome.code, 2) << message;
    EXPECT_EQ(outcome.out, "") << message;
    EXPECT_TRUE(has(outcome.err, message)) << outcome.err;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  }
}

}  // namespace
}  // namespace quire
