// Configs, model names and tensors against their config.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/dummy.h"
#include "checkpoint/gguf.h"
#include "checkpoint/gguf_tokenizer.h"
#include "checkpoint/hf_config.h"
#include "checkpoint/llama_tensors.h"
#include "checkpoint/support.h"

namespace quire {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

Json tiny_config() {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"hidden_size", 8},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 2},
          {"num_key_value_heads", 1},
          {"intermediate_size", 16},
          {"vocab_size", 10},
          {"max_position_embeddings", 64}};
}

std::string message_with(const Json& change) {
  Json config = tiny_config();
  config.update(change);
  return message_of([&] { parse_hf_config(config.dump(), "config.json"); });
}

// Sets a variable for one test.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const std::string& value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    ::setenv(name, value.c_str(), 1);
  }
  ~ScopedVariable() { old_ ? ::setenv(name_, old_->c_str(), 1) : ::unsetenv(name_); }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> old_;
};

TEST(HfConfig, RopeOfOldAndNewTransformers) {
  Json config = tiny_config();
  const Json llama3 = {{"rope_type", "llama3"},
                       {"factor", 8.0},
                       {"low_freq_factor", 1.0},
                       {"high_freq_factor", 4.0},
                       {"original_max_position_embeddings", 8192}};
  config["rope_theta"] = 500000.0;
  config["rope_scaling"] = llama3;
  const ModelConfig old_style = parse_hf_config(config.dump(), "c");
  config.erase("rope_theta");
  config.erase("rope_scaling");
  config["rope_parameters"] = llama3;
  config["rope_parameters"]["rope_theta"] = 500000.0;
  const ModelConfig new_style = parse_hf_config(config.dump(), "c");
  EXPECT_EQ(old_style.rope.type, "llama3");
  EXPECT_EQ(old_style.rope.theta, 500000.0);
  EXPECT_EQ(rope_inv_freq(old_style.rope, 128), rope_inv_freq(new_style.rope, 128));
  config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 10000.0}};
  EXPECT_FLOAT_EQ(rope_inv_freq(parse_hf_config(config.dump(), "c").rope, 8)[1], 0.1f);
}

TEST(HfConfig, Yarn) {
  const Json golden = Json::parse(std::ifstream(QUIRE_TEST_DATA "/checkpoint/yarn_cases.json"));
  ASSERT_EQ(golden.size(), 10u);
  for (const Json& c : golden) {
    Json config = tiny_config();
    config.update(c["config"]);
    const RopeConfig rope = parse_hf_config(config.dump(), "c").rope;
    EXPECT_EQ(rope.type, "yarn");
    const std::vector<float> ours = rope_inv_freq(rope, config["head_dim"]);
    ASSERT_EQ(ours.size(), c["inv_freq"].size());
    for (size_t i = 0; i < ours.size(); ++i) {
      const double expected = c["inv_freq"][i];
      EXPECT_NEAR(ours[i], expected, 1e-7 * expected) << c["config"] << ", pair " << i;
    }
    EXPECT_NEAR(rope_attention_factor(rope), c["attention_factor"].get<double>(), 1e-12) << c["config"];
  }
}

TEST(HfConfig, TokenIdsAreAnIdOrAList) {
  Json config = tiny_config();
  config["eos_token_id"] = 3;
  config["bos_token_id"] = 1;
  EXPECT_EQ(parse_hf_config(config.dump(), "c").eos_token_ids, std::vector<int32_t>{3});
  config["eos_token_id"] = {3, 4};
  EXPECT_EQ(parse_hf_config(config.dump(), "c").eos_token_ids, (std::vector<int32_t>{3, 4}));
  config["eos_token_id"] = nullptr;
  EXPECT_TRUE(parse_hf_config(config.dump(), "c").eos_token_ids.empty());
}

TEST(HfConfig, BadValuesNameTheField) {
  EXPECT_EQ(message_with(Json::object()), "accepted");
  EXPECT_EQ(message_with({{"eos_token_id", 10}}), "config.json: eos_token_id is 10; the vocabulary has 10 tokens");
  EXPECT_EQ(message_with({{"eos_token_id", {-1}}}), "config.json: eos_token_id holds something that is no token id");
  EXPECT_NE(message_with({{"rms_norm_eps", -1.0}}).find("rms_norm_eps"), std::string::npos);
  EXPECT_NE(message_with({{"rope_theta", 0.0}}).find("rope_theta"), std::string::npos);
  EXPECT_NE(message_with({{"num_hidden_layers", 1'000'000}}).find("1000000 layers"), std::string::npos);
  EXPECT_NE(message_with({{"vocab_size", 1e30}}).find("vocab_size"), std::string::npos);
  EXPECT_NE(message_with({{"rope_scaling", {{"rope_type", "spiral"}}}}).find("rope_type spiral"), std::string::npos);
  const auto yarn = [](const Json& field) {
    Json scaling = {{"rope_type", "yarn"}, {"factor", 4.0}};
    scaling.update(field);
    return message_with({{"rope_scaling", scaling}});
  };
  EXPECT_EQ(yarn(Json::object()), "accepted");
  EXPECT_EQ(yarn({{"factor", 0.0}}), "config.json: rope factor is 0");
  EXPECT_EQ(yarn({{"beta_fast", 1.0}}), "config.json: beta_fast is 1");
  EXPECT_EQ(yarn({{"beta_slow", -1.0}}), "config.json: beta_slow is -1");
  EXPECT_EQ(yarn({{"attention_factor", 0.0}}), "config.json: attention_factor is 0");
  EXPECT_EQ(yarn({{"rope_theta", 1.0}}), "config.json: rope_theta is 1");
  EXPECT_EQ(message_of([] { parse_generation_config(R"({"top_k":1e300})", "g.json"); }),
            "g.json: top_k is not an integer");
}

TEST(Checkpoint, MissingAndMisshapenTensorsAreNamed) {
  const std::vector<ExpectedTensor> all = llama_tensors(parse_hf_config(tiny_config().dump(), "c"));
  ASSERT_EQ(all.size(), 3u + 2 * 9);
  const auto open = [](const std::vector<ExpectedTensor>& tensors) {
    const TemporaryFolder folder;
    folder.write("config.json", tiny_config().dump());
    folder.write("model.safetensors", safetensors_file(tensors, 0.25f));
    return message_of([&] { open_checkpoint(folder.path(), LoadFormat::kAuto); });
  };
  EXPECT_EQ(open(all), "accepted");
  for (size_t i = 0; i < all.size(); ++i) {
    auto fewer = all, other = all;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_NE(open(fewer).find("tensor " + all[i].name + " is missing"), std::string::npos) << open(fewer);
    other[i].shape[0] += 1;
    EXPECT_NE(open(other).find("tensor " + all[i].name + " has shape ["), std::string::npos) << open(other);
  }
}

TEST(Checkpoint, ChatTemplateOfAFolder) {
  const TemporaryFolder folder;
  folder.write("tokenizer.json", "{}");
  folder.write("tokenizer_config.json",
               R"({"chat_template":[{"name":5},{"name":"tools","template":"T"},{"name":"default","template":"D"}]})");
  const auto templates = [&folder] { return open_tokenizer_files(folder.path()).chat_templates; };
  using Templates = decltype(TokenizerFiles::chat_templates);
  EXPECT_EQ(templates(), (Templates{{"default", "D"}, {"tools", "T"}})) << "no config.json is needed";
  folder.write("chat_template.json", R"({"chat_template":"P"})");
  EXPECT_EQ(templates(), (Templates{{"default", "P"}, {"tool_use", "D"}, {"tools", "T"}}));
  folder.write("tokenizer_config.json", R"({"chat_template":{"default":"D","tool_use":"U"}})");
  EXPECT_EQ(templates(), (Templates{{"default", "P"}, {"tool_use", "U"}}));
  fs::remove(fs::path(folder.path()) / "chat_template.json");
  folder.write("tokenizer_config.json", R"({"chat_template":"S"})");
  EXPECT_EQ(templates(), (Templates{{"default", "S"}}));
  fs::create_directories(fs::path(folder.path()) / "additional_chat_templates");
  folder.write("additional_chat_templates/tool_use.jinja", "A");
  folder.write("additional_chat_templates/notes.txt", "N");
  EXPECT_EQ(templates(), (Templates{{"tool_use", "A"}}));
  folder.write("chat_template.jinja", "J");
  EXPECT_EQ(templates(), (Templates{{"default", "J"}, {"tool_use", "A"}}));
  folder.write("tokenizer_config.json", R"({"chat_template":[{"name":"default","template":7}]})");
  EXPECT_EQ(open_tokenizer_files(folder.path()).tokenizer_json, "{}");
}

TEST(ResolveModelPath, HubRevisions) {
  const TemporaryFolder cache;
  const ScopedVariable variable("HF_HUB_CACHE", cache.path());
  const fs::path repository = fs::path(cache.path()) / "models--org--m";
  fs::create_directories(repository / "refs");
  for (const char* commit : {"aaa", "bbb"}) fs::create_directories(repository / "snapshots" / commit);
  std::ofstream(repository / "refs" / "main") << "aaa";
  std::ofstream(repository / "refs" / "v2") << "bbb";
  EXPECT_EQ(resolve_model_path("org/m"), (repository / "snapshots" / "aaa").string());
  EXPECT_EQ(resolve_model_path("org/m@v2"), (repository / "snapshots" / "bbb").string());
  EXPECT_EQ(resolve_model_path("org/m@bbb"), (repository / "snapshots" / "bbb").string());
  const auto message = [](const std::string& model) { return message_of([&] { resolve_model_path(model); }); };
  EXPECT_NE(message("org/m@v3").find("hf download org/m --revision v3"), std::string::npos) << message("org/m@v3");
  EXPECT_NE(message("gpt2").find("hf download gpt2"), std::string::npos);
  for (const char* bad :
       {"../m", "org/../m", "a/b/c", "org/", "/org", "or g/m", "org/m@../..", "org/m@", "", "x.gguf"}) {
    EXPECT_NE(message(bad).find("does not exist"), std::string::npos) << bad << ": " << message(bad);
  }
  std::ofstream(repository / "refs" / "evil") << "../../../..";
  EXPECT_NE(message("org/m@evil").find("hf download"), std::string::npos);
}

TEST(ResolveModelPath, AFolderWithOneGguf) {
  const TemporaryFolder folder;
  const std::string file = folder.write("a.gguf", "GGUF");
  EXPECT_EQ(resolve_model_path(folder.path()), file);
  folder.write("b.gguf", "GGUF");
  EXPECT_EQ(resolve_model_path(folder.path()), folder.path());
  EXPECT_NE(message_of([&] { open_checkpoint(folder.path(), LoadFormat::kAuto); }).find("has no config.json"),
            std::string::npos);
}

TEST(DefaultModelPath, VariableThenCache) {
  const TemporaryFolder cache;
  const ScopedVariable home("XDG_CACHE_HOME", cache.path());
  {
    const ScopedVariable none("QUIRE_DEFAULT_MODEL", "");
    EXPECT_NE(message_of([] { default_model_path(); }).find("./quickstart"), std::string::npos);
    fs::create_directories(fs::path(cache.path()) / "quire");
    const std::string file = cache.write("quire/SmolLM2-135M-Instruct.Q4_1.gguf", "GGUF");
    EXPECT_EQ(default_model_path(), file);
  }
  const std::string other = cache.write("other.gguf", "GGUF");
  const ScopedVariable named("QUIRE_DEFAULT_MODEL", other);
  EXPECT_EQ(default_model_path(), other);
  const ScopedVariable wrong("QUIRE_DEFAULT_MODEL", other + "x");
  EXPECT_NE(message_of([] { default_model_path(); }).find("QUIRE_DEFAULT_MODEL="), std::string::npos);
}

// Of any first element and length, across the place where indices leave 32 bits, and in every type.
TEST(Dummy, AnySplitGivesTheSameValues) {
  constexpr int64_t kFirst = (int64_t{1} << 32) - 300, kCount = 1000;
  const uint64_t key = dummy_key(1, "t");
  std::vector<float> whole(kCount);
  fill_dummy(key, kFirst, kCount, DType::kF32, whole.data());
  for (const int64_t step : {1, 7, 16, 33, 640}) {
    std::vector<float> f32(kCount);
    std::vector<uint16_t> f16(kCount), bf16(kCount);
    for (int64_t i = 0; i < kCount; i += step) {
      const int64_t n = std::min(step, kCount - i);
      fill_dummy(key, kFirst + i, n, DType::kF32, f32.data() + i);
      fill_dummy(key, kFirst + i, n, DType::kF16, f16.data() + i);
      fill_dummy(key, kFirst + i, n, DType::kBF16, bf16.data() + i);
    }
    EXPECT_EQ(f32, whole);
    for (size_t i = 0; i < whole.size(); ++i) {
      ASSERT_EQ(f16[i], f32_to_f16(whole[i]));
      ASSERT_EQ(bf16[i], f32_to_bf16(whole[i]));
    }
  }
}

TEST(Dummy, ValuesAreUniform) {
  constexpr int64_t kCount = 1 << 16;
  constexpr int kBins = 64;
  std::vector<float> x(kCount), y(kCount);
  fill_dummy(dummy_key(1, "a"), 0, kCount, DType::kF32, x.data());
  fill_dummy(dummy_key(1, "b"), 0, kCount, DType::kF32, y.data());
  EXPECT_NE(dummy_key(1, "a"), dummy_key(2, "a"));
  std::vector<int> counts(kBins);
  double next = 0, other = 0, power = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_LE(std::abs(x[i]), 1e-3f);
    ++counts[static_cast<size_t>(std::min(63.0, (static_cast<double>(x[i]) + 1e-3) / 2e-3 * kBins))];
    power += x[i] * x[i];
    other += x[i] * y[i];
    if (i != 0) next += x[i] * x[i - 1];
  }
  double chi2 = 0;
  for (const int count : counts) chi2 += (count - 1024.0) * (count - 1024.0) / 1024.0;
  EXPECT_LT(chi2, 63 + 5 * std::sqrt(2 * 63.0));
  EXPECT_LT(std::abs(next / power), 5 / std::sqrt(static_cast<double>(kCount)));
  EXPECT_LT(std::abs(other / power), 5 / std::sqrt(static_cast<double>(kCount)));
}

// What a file leaves open stays open: the tokenizer knows what its pre-tokenizer usually does.
TEST(Gguf, FlagsOfTheTokenizerAreOptional) {
  GgufWriter writer;
  writer.text("tokenizer.ggml.model", "gpt2").text("tokenizer.ggml.pre", "llama-bpe");
  writer.texts("tokenizer.ggml.tokens", {"a", "b"});
  const auto read = [](const GgufWriter& w) {
    const std::string file = w.file();
    return std::move(*read_gguf_tokenizer(GgufFile(std::as_bytes(std::span(file)), "f")).gguf);
  };
  const TokenizerFiles::Gguf open = read(writer);
  EXPECT_EQ(open.pre, "llama-bpe");
  EXPECT_EQ(open.add_bos, std::nullopt);
  EXPECT_EQ(open.add_eos, std::nullopt);
  EXPECT_EQ(open.add_space_prefix, std::nullopt);
  writer.flag("tokenizer.ggml.add_bos_token", false).flag("tokenizer.ggml.add_eos_token", true);
  EXPECT_EQ(read(writer).add_bos, false);
  EXPECT_EQ(read(writer).add_eos, true);
}

// A GGUF file of tiny_config()'s model.
class TinyGguf {
 public:
  GgufWriter keys;
  TinyGguf() {
    keys.text("general.architecture", "llama");
    keys.u32("llama.embedding_length", 8).u32("llama.block_count", 1).u32("llama.feed_forward_length", 16);
    keys.u32("llama.attention.head_count", 2).u32("llama.attention.head_count_kv", 1);
    keys.u32("llama.context_length", 4096);
    tensors = {
        {"token_embd.weight", {10, 8}},       {"output_norm.weight", {8}},       {"blk.0.attn_norm.weight", {8}},
        {"blk.0.attn_q.weight", {8, 8}},      {"blk.0.attn_k.weight", {4, 8}},   {"blk.0.attn_v.weight", {4, 8}},
        {"blk.0.attn_output.weight", {8, 8}}, {"blk.0.ffn_norm.weight", {8}},    {"blk.0.ffn_gate.weight", {16, 8}},
        {"blk.0.ffn_up.weight", {16, 8}},     {"blk.0.ffn_down.weight", {8, 16}}};
  }
  std::vector<ExpectedTensor> tensors;

  std::unique_ptr<Checkpoint> open() const {
    const TemporaryFolder folder;
    return open_checkpoint(folder.write("m.gguf", keys.file(tensors, 0.5f)), LoadFormat::kAuto);
  }
};

TEST(Gguf, RopeScaling) {
  {
    TinyGguf gguf;
    EXPECT_EQ(gguf.open()->config().rope.type, "default");
    gguf.keys.text("llama.rope.scaling.type", "linear").f32("llama.rope.scaling.factor", 4.0f);
    EXPECT_EQ(gguf.open()->config().rope.factor, 4.0);
  }
  TinyGguf gguf;
  gguf.keys.text("llama.rope.scaling.type", "yarn").f32("llama.rope.scaling.factor", 4.0f);
  const RopeConfig plain = gguf.open()->config().rope;
  EXPECT_EQ(plain.type, "yarn");
  EXPECT_EQ(plain.original_max_position, 4096) << "the whole context, as in llama.cpp";
  EXPECT_NEAR(rope_attention_factor(plain), 0.1 * std::log(4.0) + 1.0, 1e-12);
  gguf.keys.u32("llama.rope.scaling.original_context_length", 1024).f32("llama.rope.scaling.attn_factor", 0.5f);
  gguf.keys.f32("llama.rope.scaling.yarn_beta_fast", 16.0f).f32("llama.rope.scaling.yarn_beta_slow", 2.0f);
  const RopeConfig rope = gguf.open()->config().rope;
  EXPECT_EQ(rope.original_max_position, 1024);
  EXPECT_EQ(rope.beta_fast, 16.0);
  EXPECT_EQ(rope.beta_slow, 2.0);
  EXPECT_NEAR(rope_attention_factor(rope), 0.5 * (0.1 * std::log(4.0) + 1.0), 1e-12);

  TinyGguf other;
  other.keys.text("llama.rope.scaling.type", "spiral");
  EXPECT_NE(message_of([&] { other.open(); }).find("spiral"), std::string::npos);
}

TEST(Gguf, MissingAndMisshapenTensorsAreNamed) {
  const TinyGguf whole;
  EXPECT_EQ(message_of([&] { whole.open(); }), "accepted");
  for (size_t i = 0; i < whole.tensors.size(); ++i) {
    TinyGguf fewer, other;
    fewer.tensors.erase(fewer.tensors.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_NE(message_of([&] { fewer.open(); }).find("is missing"), std::string::npos) << whole.tensors[i].name;
    if (i == 0) continue;  // its rows are the size of the vocabulary
    other.tensors[i].shape.back() *= 2;
    EXPECT_NE(message_of([&] { other.open(); }).find("the config asks for"), std::string::npos)
        << other.tensors[i].name;
  }
}

// A folder or a GGUF file alone, without what a model needs besides.
TEST(TokenizerFiles, OfAFolderWithoutConfigAndOfAGgufFile) {
  const TemporaryFolder folder;
  folder.write("tokenizer.json", "{}");
  EXPECT_EQ(open_tokenizer_files(folder.path()).tokenizer_json, "{}");
  GgufWriter writer;
  writer.text("tokenizer.ggml.model", "gpt2").texts("tokenizer.ggml.tokens", {"a", "b"});
  EXPECT_EQ(open_tokenizer_files(folder.write("v.gguf", writer.file())).gguf->tokens.size(), 2u);
  EXPECT_NE(message_of([&] { open_tokenizer_files(folder.path() + "/none"); }).find("does not exist"),
            std::string::npos);
}

// Names of a hostile file reach a message cut and escaped.
TEST(Gguf, MessagesStayReadable) {
  std::string file = "GGUF";
  const auto put = [&](auto value) { file.append(reinterpret_cast<const char*>(&value), sizeof value); };
  put(uint32_t{3});
  put(uint64_t{0});
  put(uint64_t{1});
  const std::string key = std::string("\x1b[31m\xff") + std::string(5000, 'k');
  put(uint64_t{key.size()});
  file += key;
  put(uint32_t{99});
  const std::string message = message_of([&] { GgufFile(std::as_bytes(std::span(file)), "f"); });
  EXPECT_LT(message.size(), 200u);
  EXPECT_EQ(message.find('\x1b'), std::string::npos) << message;
  EXPECT_NE(message.find("type 99"), std::string::npos) << message;
}

}  // namespace
}  // namespace quire
