#include "bench/datasets.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <set>

#include "base/error.h"
#include "bench/arrivals.h"
#include "bench/dataset_files.h"

namespace quire {
namespace {

// Ids are letters; "ab" is one token of its own, so that what is decoded may encode to fewer.
class LetterCoder final : public TextCoder {
 public:
  LetterCoder() : ids_(26) { std::iota(ids_.begin(), ids_.end(), 0); }
  std::vector<int32_t> encode(const std::string& text) const override {
    std::vector<int32_t> ids;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text.compare(i, 2, "ab") == 0) {
        ids.push_back(26);
        ++i;
      } else {
        ids.push_back(text[i] - 'a');
      }
    }
    return ids;
  }
  std::string decode(const std::vector<int32_t>& ids) const override {
    std::string text;
    for (const int32_t id : ids) text += id == 26 ? "ab" : std::string(1, static_cast<char>('a' + id));
    return text;
  }
  const std::vector<int32_t>& ordinary_ids() const override { return ids_; }
  int32_t added_tokens() const override { return 1; }
  std::optional<std::string> as_message(const std::string& text) const override { return "zz" + text; }

 private:
  std::vector<int32_t> ids_;
};

class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& text)
      : path_(std::filesystem::temp_directory_path() / ("quire-dataset-" + std::to_string(getpid()))) {
    std::ofstream(path_) << text;
  }
  ~TemporaryFile() { std::filesystem::remove(path_); }
  std::string path() const { return path_; }

 private:
  std::filesystem::path path_;
};

std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInvalidArgument);
    return error.what();
  }
  return "no error";
}

DatasetOptions options_for(const std::string& name, const std::string& path) {
  DatasetOptions options;
  options.name = name;
  options.path = path;
  return options;
}

TEST(Datasets, RandomPromptsHaveTheirLengthsToTheToken) {
  const LetterCoder coder;
  DatasetOptions options;
  options.num_prompts = 300;
  options.random_input_len = 41;
  options.random_output_len = 8;
  options.random_prefix_len = 5;
  options.random_range_ratio = R"({"input": 0.5})";
  const auto requests = load_dataset(options, &coder);
  ASSERT_EQ(requests.size(), 300U);
  std::set<int64_t> lengths;
  for (const DatasetRequest& request : requests) {
    EXPECT_EQ(request.prompt_len, std::ssize(coder.encode(request.prompt)) + 1);
    EXPECT_EQ(request.output_len, 8);
    lengths.insert(request.prompt_len);
  }
  // 41 tokens of which the server adds one: 20 to 60, after 5 of the prefix.
  EXPECT_EQ(*lengths.begin(), 26);
  EXPECT_EQ(*lengths.rbegin(), 66);
  EXPECT_EQ(load_dataset(options, &coder)[9].prompt, requests[9].prompt);
  options.seed = 1;
  EXPECT_NE(load_dataset(options, &coder)[9].prompt, requests[9].prompt);
}

TEST(Datasets, PrefixesRepeat) {
  const LetterCoder coder;
  DatasetOptions options = options_for("prefix_repetition", "");
  options.num_prompts = 40;
  options.prefix_len = 30;
  options.suffix_len = 10;
  options.num_prefixes = 4;
  std::set<std::string> prefixes, prompts;
  for (const DatasetRequest& request : load_dataset(options, &coder)) {
    prefixes.insert(request.prompt.substr(0, 20));
    prompts.insert(request.prompt);
    EXPECT_EQ(request.prompt_len, 41);
    EXPECT_EQ(request.output_len, 128);
  }
  EXPECT_EQ(prefixes.size(), 4U);
  EXPECT_EQ(prompts.size(), 40U);
  options.num_prompts = 3;
  EXPECT_NE(error_of([&] { load_dataset(options, &coder); }).find("--num-prompts 3: must be at least"),
            std::string::npos);
}

TEST(Datasets, Custom) {
  const LetterCoder coder;
  const TemporaryFile file("{\"prompt\": \"abc\", \"output_tokens\": 3}\n\n{\"prompt\": \"x\", \"more\": 1}\r\n");
  DatasetOptions options = options_for("custom", file.path());
  options.num_prompts = 5;
  options.disable_shuffle = true;
  auto requests = load_dataset(options, &coder);
  ASSERT_EQ(requests.size(), 5U);  // from the first again
  EXPECT_EQ(requests[0].prompt, "zzabc");
  EXPECT_EQ(requests[0].prompt_len, 5);  // z z ab c and one added
  EXPECT_EQ(requests[0].output_len, 256);
  EXPECT_EQ(requests[4].prompt, "zzabc");
  options.no_oversample = options.skip_chat_template = true;
  requests = load_dataset(options, nullptr);
  ASSERT_EQ(requests.size(), 2U);
  EXPECT_EQ(requests[1].prompt, "x");
  EXPECT_EQ(requests[1].prompt_len, 0);
  options.custom_output_len = -1;
  EXPECT_NE(error_of([&] { load_dataset(options, nullptr); }).find("line 3: has no output_tokens"), std::string::npos);
  for (const char* line : {"[1]", "{\"prompt\": 3}", "{", "{\"prompt\": \"a\", \"output_tokens\": 0}"}) {
    const TemporaryFile broken(line);
    EXPECT_NE(error_of([&] { read_custom_prompts(broken.path()); }).find(" line 1: "), std::string::npos) << line;
  }
}

TEST(Datasets, ShareGpt) {
  const LetterCoder coder;
  const std::string long_text(1100, 'q');
  const TemporaryFile file(
      R"([{"conversations": [{"from": "human", "value": "hello"}, {"from": "gpt", "value": "goodbye"}]},
    {"id": 1, "conversations": [{"value": "alone"}]}, {"other": 2},
    {"conversations": [{"value": ")" +
      long_text + R"("}, {"value": "goodbye"}]},
    {"conversations": [{"value": "question"}, {"value": "no"}]}])");
  DatasetOptions options = options_for("sharegpt", file.path());
  options.num_prompts = 1;
  const auto requests = load_dataset(options, &coder);
  ASSERT_EQ(requests.size(), 1U);  // the others are alone, too long, or have too short an answer
  EXPECT_EQ(requests[0].prompt, "hello");
  EXPECT_EQ(requests[0].output_len, 7);
  EXPECT_NE(error_of([&] { load_dataset(options, nullptr); }).find("--sharegpt-output-len is needed"),
            std::string::npos);
  for (const char* text : {"{}", "[{\"conversations\": [{\"value\": 3}, {\"value\": 3}]}]", "[", ""}) {
    const TemporaryFile broken(text);
    EXPECT_NE(error_of([&] { read_conversations(broken.path()); }), "no error") << text;
  }
}

TEST(Datasets, BurstGpt) {
  const LetterCoder coder;
  const TemporaryFile file(
      "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
      "5,ChatGPT,472,18,490,Conversation log\n45,GPT-4,10,230,1317,API log\n46,GPT-4,9,0,9,API log\n");
  DatasetOptions options = options_for("burstgpt", file.path());
  options.num_prompts = 2;
  const auto requests = load_dataset(options, &coder);
  ASSERT_EQ(requests.size(), 2U);
  for (const DatasetRequest& request : requests) {
    EXPECT_EQ(request.prompt_len, 10);
    EXPECT_EQ(request.output_len, 230);
  }
  for (const char* text : {"Model\n", "Model,Request tokens,Response tokens\nGPT-4,x,3\n",
                           "Model,Request tokens,Response tokens\nGPT-4,3\n"}) {
    const TemporaryFile broken(text);
    EXPECT_NE(error_of([&] { read_burst_rows(broken.path()); }), "no error") << text;
  }
}

TEST(Datasets, OptionsThatDoNotFit) {
  const auto error = [](DatasetOptions options) { return error_of([&] { finish_dataset_options(options); }); };
  EXPECT_NE(error(options_for("random", "x")).find("--dataset-path x: prompts of --dataset-name random are made up"),
            std::string::npos);
  EXPECT_NE(error(options_for("sharegpt", "")).find("needs --dataset-path"), std::string::npos);
  EXPECT_NE(error(options_for("custom", "/nonexistent/x")).find("/nonexistent/x"), std::string::npos);
  for (const char* ratio : {"1", "-0.1", "nan", "x", "{\"output\": 1}", "{\"input\": \"a\"}"}) {
    DatasetOptions options;
    options.random_range_ratio = ratio;
    EXPECT_NE(error(options).find("--random-range-ratio"), std::string::npos) << ratio;
  }
  DatasetOptions options;
  options.input_len = 7;
  options.output_len = 9;
  finish_dataset_options(options);
  EXPECT_EQ(options.random_input_len, 7);
  EXPECT_EQ(options.custom_output_len, 9);
  EXPECT_EQ(options.sharegpt_output_len, 9);
}

TEST(Arrivals, RateIsKeptWhateverTheSeed) {
  Arrivals arrivals;
  arrivals.request_rate = 20;
  for (const double burstiness : {0.2, 1.0, 5.0, double{INFINITY}}) {
    arrivals.burstiness = burstiness;
    const auto times = arrival_times(arrivals, 4000, 3);
    EXPECT_NEAR(times.back(), 200.0, 1e-9);
    double squares = 0, last = 0;
    for (const double time : times) {
      EXPECT_GE(time, last);
      squares += (time - last) * (time - last);
      last = time;
    }
    // The variance of a gamma distribution's intervals is mean squared / shape.
    EXPECT_NEAR(squares / 4000 / (0.05 * 0.05) - 1, 1 / burstiness, 0.15 / std::min(burstiness, 1.0));
  }
  arrivals.request_rate = INFINITY;
  EXPECT_EQ(arrival_times(arrivals, 3, 0), std::vector<double>(3));
}

TEST(Arrivals, Ramps) {
  Arrivals arrivals;
  arrivals.request_rate = INFINITY;
  arrivals.burstiness = INFINITY;
  arrivals.ramp_up = "linear";
  arrivals.ramp_up_start = 1;
  arrivals.ramp_up_end = 3;
  EXPECT_EQ(arrival_times(arrivals, 3, 0), (std::vector<double>{1.0, 1.5, 1.5 + 1.0 / 3}));
  arrivals.ramp_up = "exponential";
  arrivals.ramp_up_end = 4;
  EXPECT_EQ(arrival_times(arrivals, 3, 0), (std::vector<double>{1.0, 1.5, 1.75}));
}

}  // namespace
}  // namespace quire
