#include "base/option_table.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/environment.h"
#include "base/error.h"

namespace quire {
namespace {

using Strings = std::vector<std::string>;

::testing::AssertionResult has(const std::string& text, std::string_view part) {
  if (text.find(part) != std::string::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "'" << part << "' is not in: " << text;
}

struct Settings {
  std::string model;
  int64_t max_model_len = 0;
  int32_t max_num_seqs = 256;
  uint16_t port = 8000;
  uint64_t seed = 0;
  double rate = 1.5;
  bool enable_caching = true;
  bool log_stats = true;
  bool progress = false;
  std::string layout = "plain";
  std::vector<std::string> names;
  std::vector<int> nodes;
  std::optional<double> temperature;
  std::optional<int64_t> top_k;
};

class OptionTableTest : public ::testing::Test {
 protected:
  OptionTableTest() {
    table_.group("Model");
    table_.add("model", settings_.model, "the model").value_name("MODEL");
    table_.add("max-model-len", settings_.max_model_len, "tokens")
        .human_readable()
        .word("auto", 0)
        .word("-1", 0)
        .range(1, 1 << 20);
    table_.add("served-model-name", settings_.names, "names").json_list();
    table_.add("seed", settings_.seed, "seed");
    table_.add("rate", settings_.rate, "rate").range(0, 2);
    table_.add("temperature", settings_.temperature, "temperature").range(0, 10);
    table_.add("top-k", settings_.top_k, "top k").range(-1, 1000);
    table_.group("Server");
    table_.add("port", settings_.port, "TCP port").range(0, 65535).short_name("p");
    table_.add("max-num-seqs", settings_.max_num_seqs, "sequences in a step").range(1, 65536).alias("max-sequences");
    table_.add("enable-caching", settings_.enable_caching, "cache");
    table_.add("disable-log-stats", settings_.log_stats, "no line").invert();
    table_.add("progress", settings_.progress, "bar");
    table_.add("kv-cache-layout", settings_.layout, "layout")
        .choices({"plain", "shuffle"})
        .env("VLLM_ROCM_SHUFFLE_KV_CACHE_LAYOUT");
    table_.add("numa-bind-nodes", settings_.nodes, "nodes").range(0, 63);
    table_.add_unbound("tensor-parallel-size", "only 1").short_name("tp").only("1", "must be 1: one device");
    table_.ignored("enforce-eager", Values::kNone, "nothing is captured");
    table_.ignored("swap-space", Values::kOne, "nothing is swapped");
    table_.ignored("cuda-graph-sizes", Values::kMany, "nothing is captured");
    table_.ignored("optimization-level", Values::kOne, "nothing is compiled").short_name("O");
    table_.ignored("compilation-config", Values::kOne, "nothing is compiled");
    table_.refused("speculative-config", "not supported");
    table_.group("Server");  // a group may come in parts
    table_.add("late", late_, "a late row");
    table_.positional("model");
  }
  void SetUp() override { unsetenv("VLLM_ROCM_SHUFFLE_KV_CACHE_LAYOUT"); }
  void TearDown() override { unsetenv("VLLM_ROCM_SHUFFLE_KV_CACHE_LAYOUT"); }

  ParsedOptions parse(std::vector<std::string> args) { return table_.parse(args); }
  std::string error(std::vector<std::string> args) {
    try {
      table_.parse(args);
    } catch (const Error& e) {
      EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos) << e.what();
      return e.what();
    }
    return "no error";
  }
  std::string write_config(const std::string& text, const std::string& name = "config.yaml") {
    const std::filesystem::path folder =
        std::filesystem::path(::testing::TempDir()) / ("quire_options_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder);
    const std::string path = folder / name;
    std::ofstream(path) << text;
    return path;
  }

  Settings settings_;
  bool late_ = false;
  OptionTable table_{"quire test", "A command."};
};

TEST_F(OptionTableTest, BothSpellingsAndBothForms) {
  parse({"--max_num_seqs", "7", "--port=80"});
  EXPECT_EQ(settings_.max_num_seqs, 7);
  EXPECT_EQ(settings_.port, 80);
  parse({"--max-sequences", "9", "-p", "81"});
  EXPECT_EQ(settings_.max_num_seqs, 9);
  EXPECT_EQ(settings_.port, 81);
}

TEST_F(OptionTableTest, DefaultsStay) {
  const ParsedOptions parsed = parse({});
  EXPECT_EQ(settings_.max_num_seqs, 256);
  EXPECT_TRUE(parsed.set.empty());
  EXPECT_TRUE(parsed.warnings.empty());
  EXPECT_FALSE(settings_.temperature.has_value());
}

TEST_F(OptionTableTest, Switches) {
  parse({"--no-enable-caching", "--progress"});
  EXPECT_FALSE(settings_.enable_caching);
  EXPECT_TRUE(settings_.progress);
  parse({"--enable-caching", "--no-progress"});
  EXPECT_TRUE(settings_.enable_caching);
  EXPECT_FALSE(settings_.progress);
  parse({"--disable-caching", "--progress=true"});
  EXPECT_FALSE(settings_.enable_caching);
  EXPECT_TRUE(settings_.progress);
  parse({"--disable-log-stats"});
  EXPECT_FALSE(settings_.log_stats);
  parse({"--enable-log-stats"});
  EXPECT_TRUE(settings_.log_stats);
  parse({"--no-disable-log-stats=false"});
  EXPECT_FALSE(settings_.log_stats);
  EXPECT_EQ(error({"--progress=maybe"}), "--progress maybe: must be true or false");
}

TEST_F(OptionTableTest, Lists) {
  parse({"--served-model-name", "a", "b", "--numa-bind-nodes", "0", "3"});
  EXPECT_EQ(settings_.names, (Strings{"a", "b"}));
  EXPECT_EQ(settings_.nodes, (std::vector<int>{0, 3}));
  parse({"--served-model-name", R"(["x", "y z"])"});
  EXPECT_EQ(settings_.names, (Strings{"x", "y z"}));
  EXPECT_EQ(error({"--served-model-name", "--progress"}), "--served-model-name: expects at least one value");
  EXPECT_EQ(error({"--served-model-name=[1"}), "--served-model-name [1: must be words or a JSON list of strings");
  EXPECT_EQ(error({"--numa-bind-nodes", "1", "-1"}), "--numa-bind-nodes -1: must be from 0 to 63");
}

TEST_F(OptionTableTest, Numbers) {
  parse({"--max-model-len", "4k", "--seed", "18446744073709551615", "--rate", "0.25", "--temperature", "0", "--top-k",
         "-1"});
  EXPECT_EQ(settings_.max_model_len, 4000);
  EXPECT_EQ(settings_.seed, 18446744073709551615U);
  EXPECT_EQ(settings_.rate, 0.25);
  EXPECT_EQ(settings_.temperature, 0.0);
  EXPECT_EQ(settings_.top_k, -1);
  parse({"--max-model-len", "-1"});
  EXPECT_EQ(settings_.max_model_len, 0);
  // Limits are included, what is next to them is not.
  for (const char* good : {"1", "65536"}) EXPECT_NO_THROW(parse({"--max-num-seqs", good})) << good;
  for (const char* bad : {"0", "65537"}) EXPECT_NE(error({"--max-num-seqs", bad}), "no error") << bad;
  for (const char* good : {"0", "2"}) EXPECT_NO_THROW(parse({"--rate", good})) << good;
  for (const char* bad : {"-0.001", "2.001"}) EXPECT_NE(error({"--rate", bad}), "no error") << bad;
  EXPECT_EQ(error({"--max-num-seqs", "0"}), "--max-num-seqs 0: must be from 1 to 65536");
  EXPECT_EQ(error({"--max_num_seqs=70000"}), "--max-num-seqs 70000: must be from 1 to 65536");
  EXPECT_EQ(error({"--max-num-seqs", "4x"}), "--max-num-seqs 4x: must be a whole number");
  EXPECT_EQ(error({"--max-num-seqs", "1.5"}), "--max-num-seqs 1.5: must be a whole number");
  EXPECT_EQ(error({"--max-num-seqs", ""}), "--max-num-seqs '': must be a whole number");
  EXPECT_TRUE(has(error({"--max-num-seqs", "99999999999999999999"}), "beyond what 64 bits hold"));
  EXPECT_EQ(error({"--port", "65536"}), "--port 65536: must be from 0 to 65535");
  EXPECT_EQ(error({"--rate", "2.5"}), "--rate 2.5: must be from 0 to 2");
  EXPECT_EQ(error({"--rate", "nan"}), "--rate nan: must be a finite number");
  EXPECT_EQ(error({"--seed", "-1"}), "--seed -1: must be a whole number, not negative");
  EXPECT_EQ(error({"--max-model-len", "0"}), "--max-model-len 0: must be from 1 to 1048576");
}

TEST(HumanReadable, Units) {
  EXPECT_EQ(parse_human_readable("16", "--x"), 16);
  EXPECT_EQ(parse_human_readable("4k", "--x"), 4000);
  EXPECT_EQ(parse_human_readable("4K", "--x"), 4096);
  EXPECT_EQ(parse_human_readable("25.6k", "--x"), 25600);
  EXPECT_EQ(parse_human_readable("1.1m", "--x"), 1100000);
  EXPECT_EQ(parse_human_readable("2G", "--x"), int64_t{2} << 30);
  EXPECT_EQ(parse_human_readable("1t", "--x"), 1000000000000);
  for (const char* bad : {"", "k", "1.5K", "1e3k", "infk", "4kk", " 4", "0x10", "9999999999T", "1.5"}) {
    EXPECT_THROW(parse_human_readable(bad, "--x"), Error) << bad;
  }
}

TEST_F(OptionTableTest, Choices) {
  parse({"--kv-cache-layout", "SHUFFLE"});
  EXPECT_EQ(settings_.layout, "shuffle");
  EXPECT_EQ(error({"--kv-cache-layout", "hnd"}), "--kv-cache-layout hnd: must be one of plain, shuffle");
}

TEST_F(OptionTableTest, RepeatedLastWinsWithOneWarning) {
  const ParsedOptions parsed = parse({"--port", "1", "--port", "2", "--port=3"});
  EXPECT_EQ(settings_.port, 3);
  EXPECT_EQ(parsed.warnings, Strings{"--port is given more than once; the last one counts"});
}

TEST_F(OptionTableTest, Positional) {
  parse({"--port", "1", "some/model", "--progress"});
  EXPECT_EQ(settings_.model, "some/model");
  EXPECT_EQ(error({"a", "b"}), "unexpected argument 'b'");
  parse({"--", "--odd-name"});
  EXPECT_EQ(settings_.model, "--odd-name");
  parse({"--model", "x"});
  EXPECT_EQ(settings_.model, "x");
}

TEST_F(OptionTableTest, UnknownNamesTheNearest) {
  EXPECT_EQ(error({"--max-num-seq", "1"}), "unknown option --max-num-seq; did you mean --max-num-seqs?");
  EXPECT_EQ(error({"--prot=1"}), "unknown option --prot; did you mean --port?");
  EXPECT_EQ(error({"--zzzzzzzz"}), "unknown option --zzzzzzzz; --help lists them");
  EXPECT_EQ(error({"-x"}), "unknown option -x; --help lists them");
  EXPECT_EQ(error({"--" + std::string(100000, 'p')}),
            "unknown option --" + std::string(100000, 'p') + "; --help lists them");
}

TEST_F(OptionTableTest, MissingValue) {
  EXPECT_EQ(error({"--port"}), "--port: expects a value");
  EXPECT_EQ(error({"--model", "--port", "1"}), "--model: expects a value");
}

TEST_F(OptionTableTest, NamesWithoutMeaning) {
  const ParsedOptions parsed = parse({"--enforce-eager", "--swap_space", "4", "--cuda-graph-sizes", "1", "2", "-O2",
                                      "--compilation-config.cudagraph_mode", "NONE", "m"});
  EXPECT_EQ(settings_.model, "m");
  EXPECT_EQ(parsed.warnings, (Strings{"--enforce-eager has no effect here: nothing is captured",
                                      "--swap-space has no effect here: nothing is swapped",
                                      "--cuda-graph-sizes has no effect here: nothing is captured",
                                      "-O2 has no effect here: nothing is compiled",
                                      "--compilation-config.cudagraph_mode has no effect here: nothing is compiled"}));
  EXPECT_EQ(error({"--speculative-config", "{}"}), "--speculative-config: not supported");
  EXPECT_EQ(error({"-tp", "2"}), "-tp 2: must be 1: one device");
  EXPECT_NO_THROW(parse({"-tp", "1", "--tensor-parallel-size=1"}));
}

TEST_F(OptionTableTest, EnvironmentIsWeakest) {
  setenv("VLLM_ROCM_SHUFFLE_KV_CACHE_LAYOUT", "1", 1);
  EXPECT_TRUE(parse({}).is_set("kv-cache-layout"));
  EXPECT_EQ(settings_.layout, "shuffle");
  parse({"--kv-cache-layout", "plain"});
  EXPECT_EQ(settings_.layout, "plain");
  setenv("VLLM_ROCM_SHUFFLE_KV_CACHE_LAYOUT", "0", 1);
  parse({});
  EXPECT_EQ(settings_.layout, "plain");
  setenv("VLLM_ROCM_SHUFFLE_KV_CACHE_LAYOUT", "yes", 1);
  EXPECT_EQ(error({}), "VLLM_ROCM_SHUFFLE_KV_CACHE_LAYOUT=yes: must be one of 1, true, 0, false");
}

TEST_F(OptionTableTest, ConfigFileBetweenEnvironmentAndCommandLine) {
  const std::string path = write_config(
      "model: from-file\n# comment\nmax_num_seqs: 12\nenable-caching: false\nprogress: true\nserved-model-name: [a, "
      "b]\n"
      "kv-cache-layout: plain\nmax-model-len: 4k\ndisable-log-stats: true\nenforce-eager: true\n");
  setenv("VLLM_ROCM_SHUFFLE_KV_CACHE_LAYOUT", "1", 1);
  const ParsedOptions parsed = parse({"--max-num-seqs", "13", "--config", path});
  EXPECT_EQ(settings_.model, "from-file");
  EXPECT_EQ(settings_.max_num_seqs, 13);
  EXPECT_FALSE(settings_.enable_caching);
  EXPECT_TRUE(settings_.progress);
  EXPECT_EQ(settings_.names, (Strings{"a", "b"}));
  EXPECT_EQ(settings_.layout, "plain");
  EXPECT_EQ(settings_.max_model_len, 4000);
  EXPECT_FALSE(settings_.log_stats);
  EXPECT_EQ(parsed.warnings.size(), 1U);
}

TEST_F(OptionTableTest, BadConfigFiles) {
  EXPECT_TRUE(has(error({"--config", "a.json"}), "must be a .yaml or .yml file"));
  EXPECT_TRUE(has(error({"--config", "/nonexistent/a.yaml"}), "cannot be opened"));
  EXPECT_TRUE(has(error({"--config", write_config("prot: 1\n")}), "unknown option 'prot'; did you mean 'port'?"));
  EXPECT_TRUE(has(error({"--config", write_config("port: 70000\n")}), "port 70000: must be from 0 to 65535"));
  EXPECT_TRUE(has(error({"--config", write_config("port: {a: 1}\n")}), "does not take a mapping"));
  EXPECT_TRUE(has(error({"--config", write_config("port: [1, 2]\n")}), "expects one value"));
  EXPECT_TRUE(has(error({"--config", write_config("- port\n")}), "must hold"));
  EXPECT_TRUE(has(error({"--config", write_config("port: [1\n")}), "line"));
  EXPECT_TRUE(has(error({"--config", write_config("model: &a [*a]\n")}), "config"));
  EXPECT_TRUE(has(error({"--config", write_config(std::string(100000, '['))}), "config"));
  EXPECT_TRUE(has(error({"--config", write_config(std::string(2 << 20, '#'))}), "limit"));
  EXPECT_TRUE(has(error({"--config", write_config("config: x.yaml\n")}), "unknown option"));
  EXPECT_EQ(error({"--config", "a.yaml", "--config", "b.yaml"}), "--config: may be given once");
  EXPECT_NO_THROW(parse({"--config", write_config("", "empty.yml")}));
}

TEST_F(OptionTableTest, HelpShowsEveryRowByGroup) {
  const std::string help = parse({"--port", "bad", "--help"}).help;
  for (const char* text :
       {"usage: quire test [MODEL] [options]", "Model:", "Server:", "--max-num-seqs, --max-sequences N",
        "(default: 256)", "-p, --port", "--enable-caching, --disable-caching", "{plain,shuffle}",
        "[VLLM_ROCM_SHUFFLE_KV_CACHE_LAYOUT]", "--enforce-eager --swap-space", "--speculative-config"}) {
    EXPECT_TRUE(has(help, text));
  }
  const std::string server = parse({"--help=server"}).help;
  EXPECT_TRUE(has(server, "--port"));
  EXPECT_EQ(server.find("--seed"), std::string::npos);
  EXPECT_TRUE(has(parse({"--help=swap"}).help, "nothing is swapped"));
  EXPECT_TRUE(has(parse({"--help=qwertz"}).help, "no group or option matches 'qwertz'"));
  const std::string page = parse({"--help=markdown"}).help;
  EXPECT_TRUE(has(page, "| `--max-num-seqs`, `--max-sequences` | N | 256 |  | sequences in a step |"));
  EXPECT_TRUE(has(page, "| `--disable-log-stats` |  | off |"));
  EXPECT_EQ(page.find("## Server"), page.rfind("## Server"));
  EXPECT_TRUE(has(page, "| `--enforce-eager` | nothing is captured |"));
}

class JsonOptionTest : public ::testing::Test {
 protected:
  JsonOptionTest() {
    table_.add("kwargs", text_, "values").json_object();
    table_.add("key", keys_, "keys").secret();
    table_.add("disable-stats", stats_, "no line").invert();
    table_.refused("enable-lora", "not supported", Values::kNone);
  }
  ParsedOptions parse(const Strings& args) { return table_.parse(args); }
  std::string error(const Strings& args) {
    try {
      parse(args);
    } catch (const Error& thrown) {
      return thrown.what();
    }
    return "no error";
  }
  OptionTable table_{"quire test", "test"};
  std::string text_;
  std::string keys_;
  bool stats_ = true;
};

TEST_F(JsonOptionTest, KeysAreMergedIntoOneObject) {
  EXPECT_TRUE(parse({"--kwargs", R"({"a": 1, "b": {"c": [1]}})", "--kwargs.b.d=x", "--kwargs.b.e_f", "4k", "--kwargs.g",
                     "true", "--kwargs.b.c+=2,y", "--kwargs.h+", "z", "--kwargs.i", "-5"})
                  .warnings.empty());
  EXPECT_EQ(text_, R"({"a":1,"b":{"c":[1,2,"y"],"d":"x","e_f":4000},"g":true,"h":["z"],"i":-5})");
  EXPECT_EQ(parse({"--kwargs.a", "1", "--kwargs.a", "2"}).warnings,
            Strings{"--kwargs.a is given more than once; the last one counts"});
  EXPECT_TRUE(has(error({"--kwargs", "[1]"}), "--kwargs [1]: must be a JSON object"));
  EXPECT_TRUE(has(error({"--kwargs", "{"}), "must be a JSON object"));
  EXPECT_TRUE(has(error({"--kwargs.", "1"}), "unknown option --kwargs."));
  EXPECT_TRUE(has(error({"--kwargs.a..b", "1"}), "malformed"));
  std::string deep = "--kwargs";
  for (int i = 0; i < 100; ++i) deep += ".a";
  EXPECT_TRUE(has(error({deep, "1"}), "malformed"));
  EXPECT_TRUE(has(error({"--key.a", "1"}), "unknown option --key.a"));
}

TEST_F(JsonOptionTest, FromAFile) {
  const std::string path = testing::TempDir() + "/json_option.yaml";
  std::ofstream(path) << "kwargs: {a: 1, b: [x, '1', null], c: {d: 2.5, e: true}}\n";
  parse({"--config", path, "--kwargs.c.d", "3"});
  EXPECT_EQ(text_, R"({"a":1,"b":["x","1",null],"c":{"d":3,"e":true}})");
  std::ofstream bomb(path);
  bomb << "kwargs:\n  a0: &a0 [x, x]\n";
  for (int i = 1; i < 40; ++i) bomb << "  a" << i << ": &a" << i << " [*a" << i - 1 << ", *a" << i - 1 << "]\n";
  bomb.close();
  EXPECT_TRUE(has(error({"--config", path}), "'kwargs' has more than 10000 values"));
}

TEST_F(JsonOptionTest, ARefusedSwitchMayBeOff) {
  EXPECT_EQ(error({"--enable-lora"}), "--enable-lora: not supported");
  EXPECT_NO_THROW(parse({"--no-enable-lora", "--disable-lora"}));
}

TEST_F(JsonOptionTest, ValuesHideSecrets) {
  EXPECT_EQ(parse({}).values, R"({"config":"","kwargs":"","key":"","disable-stats":false})");
  EXPECT_EQ(parse({"--key", "k\"1", "--disable-stats", "--kwargs", "{}"}).values,
            R"({"config":"","kwargs":"{}","key":"***","disable-stats":true})");
}

TEST(EditDistance, CountsSwaps) {
  EXPECT_EQ(edit_distance("", ""), 0);
  EXPECT_EQ(edit_distance("port", "prot"), 1);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("", "abc"), 3);
}

TEST(Environment, WarnsOfUnknownAndMeaninglessNames) {
  const char* const names[] = {
      "PATH=/bin",  "VLLM_USE_V1=1",      "VLLM_ROCM_USE_AITER=1", "VLLM_ROCM_USE_AITER_LINEAR=0",
      "VLLM_FOO=1", "QUIRE_TEST_MODEL=x", "QUIRE_BAR=2",           nullptr};
  EXPECT_EQ(environment_warnings(names), (Strings{"VLLM_USE_V1 has no effect here: there is one engine",
                                                  "unknown environment variables: QUIRE_BAR, VLLM_FOO"}));
}

TEST(Environment, Gibibytes) {
  setenv("VLLM_CPU_KVCACHE_SPACE", "1.5", 1);
  EXPECT_EQ(environment_value("VLLM_CPU_KVCACHE_SPACE"), "1610612736");
  setenv("VLLM_CPU_KVCACHE_SPACE", "lots", 1);
  EXPECT_THROW(environment_value("VLLM_CPU_KVCACHE_SPACE"), Error);
  setenv("VLLM_CPU_KVCACHE_SPACE", "", 1);
  EXPECT_EQ(environment_value("VLLM_CPU_KVCACHE_SPACE"), std::nullopt);
  unsetenv("VLLM_CPU_KVCACHE_SPACE");
  EXPECT_THROW(environment_value("NOT_THERE"), std::logic_error);
}

}  // namespace
}  // namespace quire
