// Hostile and sane GGUF and safetensors files, and rope frequencies, against tables of cases.
#include <gtest/gtest.h>

#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/gguf.h"
#include "checkpoint/hf_config.h"
#include "checkpoint/safetensors.h"

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

class TemporaryFolder {
 public:
  TemporaryFolder()
      : path_(std::filesystem::temp_directory_path() /
              ("quire_test_" + std::to_string(::getpid()) + "_" + std::to_string(counter()++))) {
    std::filesystem::create_directories(path_);
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  std::string write(const std::string& name, std::string_view content) const {
    std::ofstream(path_ / name, std::ios::binary) << content;
    return (path_ / name).string();
  }
  std::string path() const { return path_.string(); }

 private:
  static int& counter() {
    static int value = 0;
    return value;
  }
  std::filesystem::path path_;
};

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

class GgufCases : public testing::TestWithParam<Json> {};

// The container first; where it is sound, the checks of the vocabulary, which needs a Llama around it, speak.
TEST_P(GgufCases, AreJudgedRight) {
  const auto bytes = decode_base64(GetParam()["base64"]);
  const std::string expected = GetParam()["expect"];
  const std::string container = message_of([&] { GgufFile file(bytes, "case"); });
  if (expected == "no_crash") return;
  if (expected == "accept") {
    EXPECT_EQ(container, "accepted");
    return;
  }
  if (container != "accepted") {
    EXPECT_EQ(container.rfind("case: ", 0), 0u) << "the message names the file: " << container;
    return;
  }
  const TemporaryFolder folder;
  const std::string path = folder.write("case.gguf", {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  EXPECT_NE(message_of([&] { open_checkpoint(path, LoadFormat::kAuto)->read_tokenizer_files(); }), "accepted");
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
  EXPECT_NE(files.chat_template.find("<|im_start|>"), std::string::npos);
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
    if (rope.type == "yarn") {
      EXPECT_NE(message_of([&] { rope_inv_freq(rope, config["head_dim"]); }).find("yarn is not supported"),
                std::string::npos);
      continue;
    }
    const std::vector<float> ours = rope_inv_freq(rope, config["head_dim"]);
    ASSERT_EQ(ours.size(), c["inv_freq"].size());
    for (size_t i = 0; i < ours.size(); ++i) {
      const double expected = c["inv_freq"][i];
      EXPECT_NEAR(ours[i], expected, 1e-6 * expected) << c["id"] << " " << i;
      ++compared;
    }
  }
  EXPECT_EQ(compared, 64 + 32);
}

std::string safetensors_file(const std::vector<std::pair<std::string, std::vector<int64_t>>>& tensors, float value) {
  Json header = Json::object();
  size_t offset = 0;
  for (const auto& [name, shape] : tensors) {
    size_t elements = 1;
    for (const int64_t size : shape) elements *= static_cast<size_t>(size);
    header[name] = {{"dtype", "F32"}, {"shape", shape}, {"data_offsets", {offset, offset + elements * 4}}};
    offset += elements * 4;
  }
  const std::string text = header.dump();
  const uint64_t size = text.size();
  std::string file(reinterpret_cast<const char*>(&size), sizeof size);
  file += text;
  for (size_t i = 0; i < offset / 4; ++i) file.append(reinterpret_cast<const char*>(&value), sizeof value);
  return file;
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
  const std::vector<std::pair<std::string, std::vector<int64_t>>> embedding = {{"model.embed_tokens.weight", {10, 8}}};
  auto with_head = embedding;
  with_head.push_back({"lm_head.weight", {10, 8}});
  for (const bool tie : {true, false}) {
    for (const bool head : {true, false}) {
      const TemporaryFolder folder;
      folder.write("config.json", config_json(tie));
      folder.write("model.safetensors", safetensors_file(head ? with_head : embedding, 0.5f));
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
  folder.write("a.safetensors", safetensors_file({{"model.embed_tokens.weight", {10, 8}}}, 1.0f));
  folder.write("b.safetensors", safetensors_file({{"lm_head.weight", {10, 8}}}, 2.0f));
  const auto index = [&](const std::string& embedding, const std::string& head) {
    folder.write("model.safetensors.index.json",
                 Json{{"weight_map", {{"model.embed_tokens.weight", embedding}, {"lm_head.weight", head}}}}.dump());
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
  config["rope_scaling"] = {{"rope_type", "yarn"}, {"factor", 4.0}};
  EXPECT_NE(message(config.dump()).find("rope_scaling has rope_type yarn"), std::string::npos);
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
