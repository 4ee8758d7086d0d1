// Hostile and sane GGUF and safetensors files, and rope frequencies, against tables of cases.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/gguf.h"
#include "checkpoint/gguf_tokenizer.h"
#include "checkpoint/hf_config.h"
#include "checkpoint/llama_tensors.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/support.h"

namespace quire {
namespace {

using Json = nlohmann::json;

std::vector<Json> cases(const char* name) {
  std::ifstream file(std::string(QUIRE_TEST_DATA "/checkpoint/") + name);
  return Json::parse(file).get<std::vector<Json>>();
}

std::vector<std::byte> decode_base64(const std::string& text) {
  static const std::string kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::vector<std::byte> bytes;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const size_t value = kAlphabet.find(c);
    if (value == std::string::npos) continue;
    bits = bits << 6 | static_cast<uint32_t>(value);
    count += 6;
    if (count >= 8) {
      count -= 8;
      bytes.push_back(static_cast<std::byte>(bits >> count & 0xff));
    }
  }
  return bytes;
}

std::string test_name(const testing::TestParamInfo<Json>& info) {
  std::string name = info.param["id"].get<std::string>();
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
}

class GgufCases : public testing::TestWithParam<Json> {};

// The container and the vocabulary in it.
TEST_P(GgufCases, AreJudgedRight) {
  const auto bytes = decode_base64(GetParam()["base64"]);
  const std::string expected = GetParam()["expect"];
  const std::string message = message_of([&] { read_gguf_tokenizer(GgufFile(bytes, "case")); });
  if (expected == "accept") {
    EXPECT_EQ(message, "accepted");
  } else if (expected == "reject") {
    EXPECT_EQ(message.rfind("case: ", 0), 0u) << "the message names the file: " << message;
    EXPECT_LT(message.size(), 300u);
  }
}

INSTANTIATE_TEST_SUITE_P(All, GgufCases, testing::ValuesIn(cases("gguf_cases.json")), test_name);

TEST(Gguf, EveryPrefixOfAFileIsRefusedCleanly) {
  for (const Json& c : cases("gguf_cases.json")) {
    if (c["expect"] != "accept") continue;
    const auto bytes = decode_base64(c["base64"]);
    for (size_t n = 0; n < bytes.size(); ++n)
      message_of([&] {
        const std::span<const std::byte> whole(bytes);
        GgufFile file(whole.first(n), "cut");
      });
    for (size_t i = 0; i < bytes.size(); ++i) {
      for (const int value : {0x00, 0x01, 0x7f, 0x80, 0xff}) {
        auto changed = bytes;
        changed[i] = static_cast<std::byte>(value);
        message_of([&] { GgufFile file(changed, "changed"); });
      }
    }
  }
}

TEST(Gguf, ATruncatedModelNamesTensorAndFile) {
  const char* path = std::getenv("QUIRE_TEST_MODEL");
  if (path == nullptr) GTEST_SKIP() << "QUIRE_TEST_MODEL is not set (./test sets it)";
  std::ifstream file(path, std::ios::binary);
  std::string head(size_t{8} << 20, '\0');
  file.read(head.data(), static_cast<std::streamsize>(head.size()));
  const TemporaryFolder folder;
  const std::string cut = folder.write("cut.gguf", head);
  const std::string message = message_of([&] { open_checkpoint(cut, LoadFormat::kAuto); });
  EXPECT_NE(message.find("cut.gguf"), std::string::npos) << message;
  EXPECT_NE(message.find("cut short"), std::string::npos) << message;
}

TEST(Gguf, ReadsTheRealModel) {
  const char* path = std::getenv("QUIRE_TEST_MODEL");
  if (path == nullptr) GTEST_SKIP() << "QUIRE_TEST_MODEL is not set (./test sets it)";
  const auto checkpoint = open_checkpoint(path, LoadFormat::kAuto);
  const ModelConfig& config = checkpoint->config();
  EXPECT_EQ(config.layers, 30);
  EXPECT_EQ(config.hidden_size, 576);
  EXPECT_EQ(config.heads, 9);
  EXPECT_EQ(config.kv_heads, 3);
  EXPECT_EQ(config.head_dim, 64);
  EXPECT_EQ(config.vocab_size, 49152);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_EQ(config.eos_token_ids, std::vector<int32_t>{2});
  const TensorInfo* down = checkpoint->find("model.layers.29.mlp.down_proj.weight");
  ASSERT_NE(down, nullptr);
  EXPECT_EQ(down->shape, (std::vector<int64_t>{576, 1536}));
  EXPECT_EQ(down->dtype, DType::kQ4_1);
  const TokenizerFiles files = checkpoint->read_tokenizer_files();
  ASSERT_NE(files.gguf, nullptr);
  EXPECT_EQ(files.gguf->tokens.size(), 49152u);
  EXPECT_EQ(files.gguf->pre, "smollm");
  EXPECT_NE(files.chat_templates.at("default").find("<|im_start|>"), std::string::npos);
}

std::pair<uint64_t, uint64_t> byte_sums(std::string_view bytes) {
  uint64_t sum = 0, weighted = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const auto value = static_cast<unsigned char>(bytes[i]);
    sum += value;
    weighted += value * (i % 251);
  }
  return {sum, weighted};
}

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) {
    if (&part != parts.data()) text += '\0';
    text += part;
  }
  return text;
}

// Names, types, shapes and bytes as another reader has them (tools/make_checkpoint_golden.py).
TEST(Gguf, TheRealModelIsReadAsByTheReference) {
  const char* path = std::getenv("QUIRE_TEST_MODEL");
  if (path == nullptr) GTEST_SKIP() << "QUIRE_TEST_MODEL is not set (./test sets it)";
  using Sums = std::pair<uint64_t, uint64_t>;
  const Json golden = Json::parse(std::ifstream(QUIRE_TEST_DATA "/checkpoint/smollm2.json"));
  const auto begin = std::chrono::steady_clock::now();
  const auto checkpoint = open_checkpoint(path, LoadFormat::kAuto);
  const auto took = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(std::chrono::duration<double>(took).count(), 0.25) << "metadata only: a few ms on an idle machine";
  EXPECT_EQ(checkpoint->weight_bytes(), golden["weight_bytes"].get<int64_t>());
  std::vector<std::byte> scratch;
  for (const auto& [name, expected] : golden["tensors"].items()) {
    const TensorInfo* tensor = checkpoint->find(name);
    ASSERT_NE(tensor, nullptr) << name;
    EXPECT_EQ(dtype_name(tensor->dtype), expected["dtype"].get<std::string>()) << name;
    EXPECT_EQ(tensor->shape, expected["shape"].get<std::vector<int64_t>>()) << name;
    const auto size = static_cast<size_t>(storage_bytes(tensor->dtype, tensor->elements()));
    const auto* data = reinterpret_cast<const char*>(checkpoint->rows(*tensor, 0, tensor->shape[0], scratch));
    EXPECT_EQ(byte_sums({data, size}), expected["byte_sums"].get<Sums>()) << name;
    checkpoint->release(*tensor);
    EXPECT_EQ(byte_sums({data, size}), expected["byte_sums"].get<Sums>()) << name << ": pages come back from the file";
  }
  const TokenizerFiles files = checkpoint->read_tokenizer_files();
  const Json& vocabulary = golden["vocabulary"];
  EXPECT_EQ(byte_sums(joined(files.gguf->tokens)), vocabulary["token_sums"].get<Sums>());
  EXPECT_EQ(files.gguf->merges.size(), vocabulary["merges"].get<size_t>());
  EXPECT_EQ(byte_sums(joined(files.gguf->merges)), vocabulary["merge_sums"].get<Sums>());
  std::vector<int32_t> control;
  for (size_t i = 0; i < files.gguf->token_types.size(); ++i) {
    if (files.gguf->token_types[i] == 3) control.push_back(static_cast<int32_t>(i));
  }
  EXPECT_EQ(control, vocabulary["control_tokens"].get<std::vector<int32_t>>());
}

class SafetensorsCases : public testing::TestWithParam<Json> {};

TEST_P(SafetensorsCases, AreJudgedAsByTheReferenceReader) {
  const auto bytes = decode_base64(GetParam()["base64"]);
  const std::string message = message_of([&] { read_safetensors(bytes, "case"); });
  if (GetParam()["reference_0_x"] == "accept") {
    EXPECT_EQ(message, "accepted");
  } else {
    EXPECT_EQ(message.rfind("case: ", 0), 0u) << message;
  }
}

INSTANTIATE_TEST_SUITE_P(All, SafetensorsCases, testing::ValuesIn(cases("safetensors_cases.json")), test_name);

TEST(Rope, FrequenciesOfTheCases) {
  int compared = 0;
  for (const Json& c : cases("rope_cases.json")) {
    const Json& config = c["config"];
    RopeConfig rope;
    rope.type = config["rope_type"];
    rope.theta = config["rope_theta"];
    rope.factor = config.value("factor", 1.0);
    rope.low_freq_factor = config.value("low_freq_factor", 1.0);
    rope.high_freq_factor = config.value("high_freq_factor", 4.0);
    rope.original_max_position = config.value("original_max_position_embeddings", int64_t{8192});
    const std::vector<float> ours = rope_inv_freq(rope, config["head_dim"]);
    ASSERT_EQ(ours.size(), c["inv_freq"].size());
    for (size_t i = 0; i < ours.size(); ++i) {
      const double expected = c["inv_freq"][i];
      EXPECT_NEAR(ours[i], expected, 1e-6 * expected) << c["id"] << " " << i;
      ++compared;
    }
    EXPECT_NEAR(rope_attention_factor(rope), c["attention_factor"].get<double>(), 1e-9);
  }
  EXPECT_EQ(compared, 64 + 32 + 64);
}

constexpr const char* kConfig =
    R"({"architectures":["LlamaForCausalLM"],"hidden_size":8,"num_hidden_layers":1,"num_attention_heads":2,"num_key_value_heads":1,
        "intermediate_size":16,"vocab_size":10,"max_position_embeddings":64,"rms_norm_eps":1e-5,"eos_token_id":[2,3],"tie_word_embeddings":%TIE%})";

std::string config_json(bool tie) {
  std::string text = kConfig;
  text.replace(text.find("%TIE%"), 5, tie ? "true" : "false");
  return text;
}

// tie_word_embeddings decides; a head that is in the file all the same is not used, one that is missing is named.
TEST(HuggingFaceFolder, TiedAndUntiedHeads) {
  const auto tied = llama_tensors(parse_hf_config(config_json(true), "")),
             with_head = llama_tensors(parse_hf_config(config_json(false), ""));
  for (const bool tie : {true, false}) {
    for (const bool head : {true, false}) {
      const TemporaryFolder folder;
      folder.write("config.json", config_json(tie));
      folder.write("model.safetensors", safetensors_file(head ? with_head : tied, 0.5f));
      const std::string message = message_of([&] { open_checkpoint(folder.path(), LoadFormat::kAuto); });
      if (tie || head) {
        EXPECT_EQ(message, "accepted");
      } else {
        EXPECT_NE(message.find("lm_head.weight is missing"), std::string::npos) << message;
      }
    }
  }
}

TEST(HuggingFaceFolder, ReadsShardsAndRefusesBrokenIndexes) {
  const TemporaryFolder folder;
  folder.write("config.json", config_json(false));
  folder.write("generation_config.json", R"({"temperature":0.6,"top_k":20,"eos_token_id":[3,7]})");
  const auto tied = llama_tensors(parse_hf_config(config_json(true), ""));
  folder.write("a.safetensors", safetensors_file(tied, 1.0f));
  folder.write("b.safetensors", safetensors_file({{"lm_head.weight", {10, 8}}}, 2.0f));
  const auto index = [&](const std::string& embedding, const std::string& head) {
    Json map = {{"lm_head.weight", head}};
    for (const ExpectedTensor& tensor : tied) map[tensor.name] = "a.safetensors";
    map["model.embed_tokens.weight"] = embedding;
    folder.write("model.safetensors.index.json", Json{{"weight_map", map}}.dump());
  };
  index("a.safetensors", "b.safetensors");
  const auto checkpoint = open_checkpoint(folder.path(), LoadFormat::kAuto);
  const TensorInfo* head = checkpoint->find("lm_head.weight");
  ASSERT_NE(head, nullptr);
  std::vector<std::byte> scratch;
  EXPECT_EQ(reinterpret_cast<const float*>(checkpoint->rows(*head, 9, 1, scratch))[7], 2.0f);
  EXPECT_EQ(checkpoint->config().eos_token_ids, (std::vector<int32_t>{2, 3, 7}));
  EXPECT_EQ(checkpoint->generation_config().temperature, 0.6);
  EXPECT_EQ(checkpoint->generation_config().top_k, 20);

  const auto message = [&] { return message_of([&] { open_checkpoint(folder.path(), LoadFormat::kAuto); }); };
  index("a.safetensors", "c.safetensors");
  EXPECT_NE(message().find("c.safetensors, which is not there"), std::string::npos) << message();
  index("b.safetensors", "b.safetensors");
  EXPECT_NE(message().find("model.embed_tokens.weight is not in b.safetensors"), std::string::npos) << message();
  index("../a.safetensors", "b.safetensors");
  EXPECT_NE(message().find("is not a file name of this folder"), std::string::npos) << message();
}

TEST(HuggingFaceFolder, ConfigErrorsNameTheField) {
  const auto message = [](const std::string& text) {
    return message_of([&] { parse_hf_config(text, "config.json"); });
  };
  EXPECT_EQ(message("[]"), "config.json is not a JSON object");
  EXPECT_EQ(message("{"), "config.json is not a JSON object");
  EXPECT_EQ(message("{}"), "config.json: architectures is missing");
  Json config = Json::parse(config_json(true));
  config["hidden_size"] = 0;
  EXPECT_EQ(message(config.dump()), "config.json: hidden_size is 0; 1 to 2147483648 is allowed");
  config["hidden_size"] = "8";
  EXPECT_EQ(message(config.dump()), "config.json: hidden_size is not an integer");
  config["hidden_size"] = 8;
}

TEST(Dummy, ValuesDoNotDependOnTheSplitAndStayInRange) {
  const TemporaryFolder folder;
  folder.write("config.json", config_json(false));
  const auto checkpoint = open_checkpoint(folder.path(), LoadFormat::kDummy, 3);
  const TensorInfo* tensor = checkpoint->find("model.layers.0.mlp.up_proj.weight");
  ASSERT_NE(tensor, nullptr);
  std::vector<std::byte> scratch;
  const auto* p = reinterpret_cast<const float*>(checkpoint->rows(*tensor, 0, 16, scratch));
  const std::vector<float> whole(p, p + 16 * 8);
  double sum = 0;
  for (int64_t row = 0; row < 16; ++row) {
    const auto* one = reinterpret_cast<const float*>(checkpoint->rows(*tensor, row, 1, scratch));
    for (int64_t i = 0; i < 8; ++i) {
      EXPECT_EQ(one[i], whole[static_cast<size_t>(row * 8 + i)]);
      EXPECT_LE(std::abs(one[i]), 1e-3f);
      sum += one[i] != 0.0f;
    }
  }
  EXPECT_GT(sum, 120) << "zeros would not do";
}

TEST(OpenCheckpoint, SaysWhatIsMissing) {
  const TemporaryFolder folder;
  EXPECT_NE(
      message_of([&] { open_checkpoint(folder.path() + "/none.gguf", LoadFormat::kAuto); }).find("does not exist"),
      std::string::npos);
  EXPECT_NE(message_of([&] { open_checkpoint(folder.path(), LoadFormat::kAuto); }).find("has no config.json"),
            std::string::npos);
  ::setenv("HF_HUB_CACHE", folder.path().c_str(), 1);
  const std::string hub = message_of([&] { open_checkpoint("some-org/some-model", LoadFormat::kAuto); });
  EXPECT_NE(hub.find("hf download some-org/some-model"), std::string::npos) << hub;
  const std::filesystem::path repo = std::filesystem::path(folder.path()) / "models--some-org--some-model";
  std::filesystem::create_directories(repo / "refs");
  std::filesystem::create_directories(repo / "snapshots" / "abc");
  std::ofstream(repo / "refs" / "main") << "abc\n";
  EXPECT_EQ(resolve_model_path("some-org/some-model"), (repo / "snapshots" / "abc").string());
  ::unsetenv("HF_HUB_CACHE");
}

}  // namespace
}  // namespace quire
