// Cases on the tokenizers of known models: cut down to what the cases need (tools/trim_tokenizers.py), or, with
// QUIRE_TEST_TOKENIZERS, whole ones from a folder with MODEL/tokenizer.json (or tokenizer.json.xz).
#include <gtest/gtest.h>

#include "text/detokenizer.h"
#include "text/unicode.h"
#include "tokenizer_test_data.h"

namespace quire {
namespace {

using nlohmann::json;

const std::vector<std::string> kModels = {"llama3_1", "qwen3", "deepseek_v3", "gptoss", "gemma3", "mistral_v0_1"};

std::string hex_bytes(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

uint64_t fnv1a_of(const std::vector<int32_t>& ids) {
  uint64_t hash = 0xCBF29CE484222325;
  for (const int32_t id : ids) hash = (hash ^ static_cast<uint32_t>(id)) * 0x100000001B3;
  return hash;
}

class TokenizerCases : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const char* folder = std::getenv("QUIRE_TEST_TOKENIZERS");
    source_ = folder == nullptr
                  ? testing::read_data("tokenizers/" + GetParam() + ".json")
                  : testing::read_maybe_compressed(std::filesystem::path(folder) / GetParam() / "tokenizer.json");
    cases_ = testing::read_json_data("tokenizer_cases.json");
    tokenizer_ = tokenizer_from_json(source_, "");
  }

  std::string source_;
  json cases_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_P(TokenizerCases, Ids) {
  EXPECT_GT(cases_["tokenizer"].size(), 50u);
  for (const json& row : cases_["tokenizer"]) {
    SCOPED_TRACE(row["id"].get<std::string>());
    const std::string text = hex_bytes(row["utf8_hex"]);
    const auto ids = tokenizer_->encode(text, false);
    EXPECT_EQ(ids, row["ids"][GetParam()].get<std::vector<int32_t>>());
    EXPECT_EQ(tokenizer_->decode(ids, false), row["decoded_differs"].value(GetParam(), text));
  }
  for (const json& row : cases_["tokenizer_invalid_utf8"]) {
    SCOPED_TRACE(row["id"].get<std::string>());
    const auto ids = tokenizer_->encode(hex_bytes(row["bytes_hex"]), false);
    EXPECT_EQ(ids, row["ids_after_replacement"][GetParam()].get<std::vector<int32_t>>());
  }
  for (const json& row : cases_["tokenizer_long"]) {
    SCOPED_TRACE(row["id"].get<std::string>());
    std::string text;
    for (int n = row["repeat"][1]; n > 0; --n) text += row["repeat"][0].get<std::string>();
    const auto ids = tokenizer_->encode(text, false);
    EXPECT_EQ(ids.size(), row["expected"][GetParam()]["n"].get<size_t>());
    EXPECT_EQ(fnv1a_of(ids), row["expected"][GetParam()]["fnv1a"].get<uint64_t>());
  }
}

TEST_P(TokenizerCases, Streams) {
  for (const char* section : {"stream", "stream_cut"}) {
    for (const json& row : cases_[section]) {
      SCOPED_TRACE(row["id"].get<std::string>());
      const json& expected = row["per_model"][GetParam()];
      Detokenizer stream(*tokenizer_, {.skip_special_tokens = false});
      std::vector<std::string> deltas;
      for (const int32_t id : expected["ids"].get<std::vector<int32_t>>()) {
        stream.push(id);
        deltas.emplace_back(stream.take());
        EXPECT_TRUE(is_valid_utf8(deltas.back()));
      }
      EXPECT_EQ(deltas, expected["deltas"].get<std::vector<std::string>>());
      stream.finish();
      EXPECT_EQ(stream.take(), expected["final_flush"].get<std::string>());
    }
  }
}

TEST_P(TokenizerCases, AddedTokens) {
  for (const json& group : cases_["added_tokens"]) {
    if (group["base"] != GetParam()) continue;
    SCOPED_TRACE(group["id"].get<std::string>());
    const size_t list = source_.find('[', source_.find("\"added_tokens\""));  // as text: the files are large
    std::string source = source_;
    for (const json& token : group["append_to_added_tokens"]) source.insert(list + 1, token.dump() + ",");
    const auto tokenizer = tokenizer_from_json(source, "");
    for (const json& row : group["cases"]) {
      EXPECT_EQ(tokenizer->encode(row["text"].get<std::string>(), false), row["ids"].get<std::vector<int32_t>>())
          << row["text"];
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, TokenizerCases, ::testing::ValuesIn(kModels));

}  // namespace
}  // namespace quire
