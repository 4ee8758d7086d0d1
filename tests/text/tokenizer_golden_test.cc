// Ids as Hugging Face tokenizers gives them (tools/make_tokenizer_golden.py).
#include <gtest/gtest.h>

#include <cstdio>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "text/detokenizer.h"
#include "text/pre_tokenizer.h"
#include "text/tokenizer_json_steps.h"
#include "tokenizer_test_data.h"

namespace quire {
namespace {

using nlohmann::json;
using testing::read_data;
using testing::read_json_data;

TEST(TokenizerGolden, SmallTokenizersInAllVariants) {
  const json golden = read_json_data("tokenizer_small_golden.json");
  EXPECT_GE(golden.size(), 12u);
  for (const json& group : golden) {
    SCOPED_TRACE(group["name"].get<std::string>());
    json source = read_json_data("tokenizer_" + group["base"].get<std::string>() + ".json");
    source.update(group["replaced"]);
    const auto tokenizer = tokenizer_from_json(source.dump(), "");
    for (const json& row : group["cases"]) {
      const auto text = row["text"].get<std::string>();
      const auto ids = tokenizer->encode(text, true);
      EXPECT_EQ(ids, row["ids"].get<std::vector<int32_t>>()) << row["text"];
      const std::string decoded = tokenizer->decode(ids, true);
      // The reference decodes an added token that is not ASCII as if it were spelled in bytes, which breaks the last
      // letter.
      if (group["name"] != "nfc") {
        EXPECT_EQ(decoded, row.value("decoded", text)) << row["text"];
      }

      // Token by token the same text comes out, but for the space that encoding put in front.
      Detokenizer stream(*tokenizer, {});
      std::string streamed;
      for (const int32_t id : ids) {
        stream.push(id);
        streamed += stream.take();
      }
      stream.finish();
      streamed += stream.take();
      EXPECT_TRUE(streamed == decoded || streamed == " " + decoded) << row["text"] << " " << streamed;
    }
  }
}

template <class Items>
std::string fnv1a_of(const Items& items) {
  uint64_t hash = 0xCBF29CE484222325;
  for (const auto item : items) hash = (hash ^ static_cast<std::make_unsigned_t<decltype(item)>>(item)) * 0x100000001B3;
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016lx", static_cast<unsigned long>(hash));
  return digits;
}

// 2,000 random texts in all kinds of tokenizers. What differs in which way says tools/fuzz_tokenizers.py.
TEST(TokenizerGolden, RandomTexts) {
  const json golden = read_json_data("tokenizer_random_golden.json");
  size_t compared = 0;
  for (const auto& [file, rows] : golden.items()) {
    SCOPED_TRACE(file);
    const auto tokenizer = tokenizer_from_json(read_data(file), "");
    for (const json& row : rows) {
      const auto text = row[0].get<std::string>();
      const auto ids = tokenizer->encode(text, true);
      EXPECT_EQ(ids.size(), row[1].get<size_t>()) << row[0];
      EXPECT_EQ(fnv1a_of(ids), row[2]) << row[0];
      EXPECT_EQ(fnv1a_of(tokenizer->decode(ids, true)), row[3]) << row[0];
      ++compared;
    }
  }
  EXPECT_EQ(compared, 2000u);
}

TEST(TokenizerGolden, SentencePieceModels) {
  const json golden = read_json_data("tokenizer_sentencepiece_golden.json");
  for (const auto& [name, rows] : golden.items()) {
    SCOPED_TRACE(name);
    const auto tokenizer = tokenizer_from_sentence_piece(read_data(name + ".model"), "");
    EXPECT_EQ(rows.size(), 100u);
    for (const json& row : rows) {
      const auto ids = tokenizer->encode(row[0].get<std::string>(), true);
      EXPECT_EQ(ids, row[1].get<std::vector<int32_t>>()) << row[0];
      EXPECT_EQ(tokenizer->decode(ids, true), row[2].get<std::string>()) << row[0];
    }
  }
  using Ids = std::vector<int32_t>;
  const std::string bpe = read_data("bpe.model");
  const auto plain = tokenizer_from_sentence_piece(bpe, R"({"add_bos_token":false})");
  EXPECT_EQ(plain->encode("", true), Ids{});
  EXPECT_EQ(plain->bos_id(), 1);
  EXPECT_EQ(tokenizer_from_sentence_piece(bpe, R"({"add_eos_token":true})")->encode("", true), (Ids{1, 2}));
  EXPECT_EQ(plain->encode("</s>", true), Ids{2}) << "a control token that the text spells";
}

// What a token inside an answer is: the stream shows a space before a word even where decoding the whole drops it.
TEST(TokenizerGolden, TokensOfEveryKindOfDecoder) {
  const auto bytes_of = [](const char* file, const std::string& token) {
    const auto tokenizer = tokenizer_from_json(read_data(file), "");
    return std::string(tokenizer->token_bytes(tokenizer->token_id(token)));
  };
  EXPECT_EQ(bytes_of("tokenizer_bert.json", "##s"), "s");
  EXPECT_EQ(bytes_of("tokenizer_bert.json", "the"), " the");
  EXPECT_EQ(bytes_of("tokenizer_bert.json", "."), ".") << "cleaned up";
  EXPECT_EQ(bytes_of("tokenizer_t5.json", "\u2581"), " ");
  EXPECT_EQ(bytes_of("tokenizer_xlmr.json", "<0xE4>"), "\xE4");
}

// Values by the reference, as the others here.
TEST(TokenizerGolden, CtcDecoder) {
  const auto decoded = [](const json& step, std::vector<std::string> tokens) {
    Decoder decoder;
    read_decoder(step, decoder);
    return decoder.decode(std::move(tokens));
  };
  EXPECT_EQ(decoded({{"type", "CTC"}},
                    {"<pad>", "h", "h", "e", "<pad>", "l", "l", "<pad>", "l", "o", "|", "|", " n't", " .", "a<pad>b"}),
            "hello n't.ab");
  EXPECT_EQ(decoded({{"type", "CTC"}}, {"x", "<pad>", "x"}), "xx");
  EXPECT_EQ(decoded({{"type", "CTC"}, {"pad_token", "_"}, {"cleanup", false}}, {"_", "a", "a", "|", "_", "|", " ."}),
            "a|| .");
}

TEST(TokenizerGolden, UnicodeScriptsDropsSpacesAtTheStart) {
  const std::string text = "  a b1 \u3069\u30b3\u751f\u3002\u0600 x\u0301 ";
  std::vector<TextSpan> spans;
  make_script_splitter()->split(text, {0, static_cast<uint32_t>(text.size())}, spans);
  std::vector<std::string> words;
  for (const TextSpan span : spans) words.push_back(text.substr(span.begin, span.end - span.begin));
  EXPECT_EQ(words, (std::vector<std::string>{"a b", "1 ", "\u3069\u30b3\u751f", "\u3002", "\u0600 ", "x", "\u0301 "}));
}

TEST(TokenizerGolden, WordPieceOfWordsSpelledInBytes) {
  json source = read_json_data("tokenizer_bert.json");
  source["pre_tokenizer"] =
      source["decoder"] = {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"use_regex", true}};
  const auto tokenizer = tokenizer_from_json(source.dump(), "");
  const auto ids = tokenizer->encode("the theme don't", false);
  std::vector<std::string> tokens;
  for (const int32_t id : ids) tokens.emplace_back(tokenizer->token_string(id));
  EXPECT_EQ(tokens, (std::vector<std::string>{"[UNK]", "[UNK]", "[UNK]", "'", "##t"}));
  EXPECT_EQ(tokenizer->decode(ids, true), "'##t");
}

// An added token that is looked for in normalized text decodes to what the normalizer makes of it.
TEST(TokenizerGolden, NormalizedAddedTokens) {
  json source = read_json_data("tokenizer_sentencepiece.json");
  const auto add = [&](int id, const char* content) {
    source["added_tokens"].push_back({{"id", id}, {"content", content}, {"normalized", true}, {"special", false}});
  };
  add(322, "abc");
  add(323, "d g");
  const auto tokenizer = tokenizer_from_json(source.dump(), "");
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(tokenizer->encode("x abc y", false), (Ids{278, 277, 322, 278, 124}));
  EXPECT_EQ(tokenizer->decode(Ids{278, 277, 322, 278, 124}, true), "x abc y");
  EXPECT_EQ(tokenizer->decode(Ids{278, 125, 323, 263}, true), "z d gd");
  EXPECT_EQ(tokenizer->token_id("abc"), 322);
  EXPECT_EQ(tokenizer->token_string(323), "\u2581d\u2581g");
  EXPECT_EQ(tokenizer->token_bytes(322), " abc");
}

TEST(TokenizerGolden, PatternsCutTextLikeTheRegularExpressions) {
  const json golden = read_json_data("tokenizer_splits_golden.json");
  using Stages = std::vector<KnownPattern>;
  const std::map<std::string, Stages> patterns = {
      {"gpt2", {KnownPattern::kGpt2}},
      {"llama3", {KnownPattern::kLlama3}},
      {"qwen2", {KnownPattern::kQwen2}},
      {"deepseek_v3", {KnownPattern::kDigits3, KnownPattern::kDeepSeekCjk, KnownPattern::kDeepSeekV3}},
      {"o200k", {KnownPattern::kO200k}},
  };
  for (const auto& [name, stages] : patterns) {
    SCOPED_TRACE(name);
    PreTokenizer pre_tokenizer;
    for (const KnownPattern stage : stages) pre_tokenizer.add(stage);
    PreTokenizer::Scratch scratch;
    const json& rows = golden.at(name);
    EXPECT_GE(rows.size(), 100u);
    for (const json& row : rows) {
      const auto text = row[0].get<std::string>();
      std::vector<uint32_t> ends;
      for (const TextSpan span : pre_tokenizer.split(text, true, scratch).spans) ends.push_back(span.end);
      EXPECT_EQ(ends, row[1].get<std::vector<uint32_t>>()) << row[0];
    }
  }
}

TEST(TokenizerGolden, SmolLm2FromGguf) {
  const char* path = std::getenv("QUIRE_TEST_MODEL");
  if (path == nullptr) GTEST_SKIP() << "QUIRE_TEST_MODEL is not set to SmolLM2's GGUF file";
  const auto tokenizer = tokenizer_from_gguf(testing::GgufVocabularyReader(path).result);
  EXPECT_EQ(tokenizer->vocab_size(), 49152);
  EXPECT_EQ(tokenizer->bos_id(), 1);
  EXPECT_EQ(tokenizer->eos_id(), 2);
  EXPECT_EQ(tokenizer->token_id("<|im_end|>"), 2);
  EXPECT_TRUE(tokenizer->is_special(2));
  EXPECT_EQ(tokenizer->token_bytes(tokenizer->token_id("\xC4\xA0the")), " the");
  const json golden = read_json_data("tokenizer_smollm2_golden.json");
  EXPECT_EQ(golden.size(), 500u);
  for (const json& row : golden) {
    const auto text = row[0].get<std::string>();
    const auto ids = tokenizer->encode(text, true);  // SmolLM2 asks for no BOS
    EXPECT_EQ(ids, row[1].get<std::vector<int32_t>>()) << row[0];
  }
}

// A GGUF vocabulary with scores makes the merges that the SentencePiece-like tokenizer.json lists.
TEST(TokenizerGolden, SentencePieceFromGguf) {
  const json source = read_json_data("tokenizer_sentencepiece.json");
  GgufVocabulary vocabulary;
  vocabulary.model = "llama";
  const json& vocab = source["model"]["vocab"];
  vocabulary.tokens.resize(vocab.size());
  vocabulary.scores.assign(vocab.size(), 0);
  vocabulary.token_types.assign(vocab.size(), 1);
  for (const auto& [spelling, id] : vocab.items()) {
    const auto index = id.get<size_t>();
    vocabulary.tokens[index] = spelling;
    if (spelling.starts_with("<0x")) vocabulary.token_types[index] = 6;
    vocabulary.scores[index] = -static_cast<float>(index);
  }
  vocabulary.token_types[0] = 2;
  vocabulary.token_types[1] = vocabulary.token_types[2] = 3;
  vocabulary.bos_id = 1;
  const auto from_gguf = tokenizer_from_gguf(vocabulary);
  const auto from_json = tokenizer_from_json(source.dump(), "");
  for (const char* text : {"the theme then", " hello  help", "x>\xE2\x96\x81</x> </", "\xE4\xBD\xA0 the</s>end", ""}) {
    EXPECT_EQ(from_gguf->encode(text, true), from_json->encode(text, true)) << text;
    EXPECT_EQ(from_gguf->decode(from_gguf->encode(text, false), false),
              from_json->decode(from_json->encode(text, false), false));
  }
}

TEST(TokenizerGolden, NamesAndIds) {
  const auto tokenizer =
      tokenizer_from_json(read_data("tokenizer_small.json"),
                          R"({"bos_token":{"content":"<|im_start|>"},"eos_token":"<|im_end|>","pad_token":null})");
  EXPECT_EQ(tokenizer->bos_id(), 1);
  EXPECT_EQ(tokenizer->eos_id(), 2);
  const int32_t the = tokenizer->token_id("\xC4\xA0the");
  ASSERT_GE(the, 0);
  EXPECT_EQ(tokenizer->token_string(the), "\xC4\xA0the");
  EXPECT_EQ(tokenizer->token_bytes(the), " the");
  EXPECT_FALSE(tokenizer->is_special(the));
  EXPECT_EQ(tokenizer->token_string(2), "<|im_end|>");
  EXPECT_EQ(tokenizer->token_id("no such token"), -1);
  for (const int32_t id : {-1, tokenizer->vocab_size(), INT32_MAX, INT32_MIN}) {
    EXPECT_EQ(tokenizer->token_bytes(id), "");
    EXPECT_EQ(tokenizer->token_string(id), "");
    EXPECT_FALSE(tokenizer->is_special(id));
    EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{id, the}, true), " the");
  }
}

}  // namespace
}  // namespace quire
