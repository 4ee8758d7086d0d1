#include "bench/datasets.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/quote.h"
#include "bench/dataset_files.h"
#include "text/chat_format.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

namespace quire {
namespace {

constexpr double kMany = 1 << 24;

class LocalCoder final : public TextCoder {
 public:
  LocalCoder(const Tokenizer& tokenizer, const ChatFormat* chat) : tokenizer_(tokenizer), chat_(chat) {
    for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
      const std::string_view bytes = tokenizer.token_bytes(id);
      // Pieces of characters are left out: put together at random they are no text.
      if (!tokenizer.is_special(id) && !bytes.empty() && is_valid_utf8(bytes)) ids_.push_back(id);
    }
    added_ = static_cast<int32_t>(tokenizer.encode("a", true).size() - tokenizer.encode("a", false).size());
  }
  std::vector<int32_t> encode(const std::string& text) const override { return tokenizer_.encode(text, false); }
  std::string decode(const std::vector<int32_t>& ids) const override { return tokenizer_.decode(ids, false); }
  const std::vector<int32_t>& ordinary_ids() const override { return ids_; }
  int32_t added_tokens() const override { return added_; }
  std::optional<std::string> as_message(const std::string& text) const override {
    if (chat_ == nullptr || chat_->empty()) return std::nullopt;
    const nlohmann::ordered_json messages = {{{"role", "user"}, {"content", text}}};
    ChatFormat::Conversation conversation;
    conversation.messages = &messages;
    return chat_->render(conversation);
  }

 private:
  const Tokenizer& tokenizer_;
  const ChatFormat* chat_;
  std::vector<int32_t> ids_;
  int32_t added_ = 0;
};

int64_t draw(const LengthRange& range, std::mt19937_64& random) {
  return std::uniform_int_distribution<int64_t>(range.least, range.most)(random);
}

// A text that encodes to exactly `length` ids, or as near as ten rounds get: merges across the borders of ids change
// the count, so what is missing is filled up and what is too much cut off.
std::string text_of_length(std::vector<int32_t> ids, int64_t length, const TextCoder& coder, std::mt19937_64& random,
                           int64_t& found) {
  constexpr int kRounds = 10;
  const std::vector<int32_t>& ordinary = coder.ordinary_ids();
  std::string text;
  for (int round = 0; round < kRounds; ++round) {
    text = coder.decode(ids);
    ids = coder.encode(text);
    found = std::ssize(ids);
    if (found == length) break;
    if (round + 1 == kRounds) break;
    while (std::ssize(ids) < length) ids.push_back(ordinary[random() % ordinary.size()]);
    ids.resize(static_cast<size_t>(length));
  }
  return text;
}

std::vector<int32_t> drawn_ids(int64_t length, const TextCoder& coder, std::mt19937_64& random) {
  const std::vector<int32_t>& ordinary = coder.ordinary_ids();
  std::vector<int32_t> ids(static_cast<size_t>(length));
  for (int32_t& id : ids) id = ordinary[random() % ordinary.size()];
  return ids;
}

void warn_of_lengths(int64_t inexact, size_t count) {
  if (inexact > 0)
    log_warning(
        fmt::format("{} of {} prompts differ from the length that was asked for by a few tokens", inexact, count));
}

std::vector<DatasetRequest> random_requests(const DatasetOptions& options, const TextCoder& coder) {
  std::mt19937_64 random(options.seed);
  const LengthRange inputs =
      random_lengths(std::max(options.random_input_len - coder.added_tokens(), 1), random_ratio(options, "input"));
  const LengthRange outputs = random_lengths(options.random_output_len, random_ratio(options, "output"));
  const std::vector<int32_t>& ordinary = coder.ordinary_ids();
  const std::vector<int32_t> prefix = drawn_ids(options.random_prefix_len, coder, random);
  std::vector<DatasetRequest> requests(static_cast<size_t>(options.num_prompts));
  int64_t inexact = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    const int64_t own = draw(inputs, random);
    const uint64_t offset = random() % ordinary.size();
    std::vector<int32_t> ids = prefix;
    for (int64_t k = 0; k < own; ++k)
      ids.push_back(ordinary[(offset + i + static_cast<uint64_t>(k)) % ordinary.size()]);
    const int64_t wanted = std::ssize(ids);
    int64_t found = 0;
    requests[i].prompt = text_of_length(std::move(ids), wanted, coder, random, found);
    requests[i].prompt_len = found + coder.added_tokens();
    requests[i].output_len = static_cast<int32_t>(draw(outputs, random));
    inexact += found != wanted ? 1 : 0;
  }
  warn_of_lengths(inexact, requests.size());
  return requests;
}

// Each of a few prefixes with as many suffixes of its own.
std::vector<DatasetRequest> repetition_requests(const DatasetOptions& options, const TextCoder& coder) {
  std::mt19937_64 random(options.seed);
  const int32_t each = options.num_prompts / options.num_prefixes;
  if (each == 0) {
    throw invalid_argument(fmt::format("--num-prompts {}: must be at least --prefix-repetition-num-prefixes, {}",
                                       options.num_prompts, options.num_prefixes),
                           "num-prompts");
  }
  std::vector<DatasetRequest> requests;
  int64_t inexact = 0;
  for (int32_t p = 0; p < options.num_prefixes; ++p) {
    const std::vector<int32_t> prefix = drawn_ids(options.prefix_len, coder, random);
    for (int32_t s = 0; s < each; ++s) {
      std::vector<int32_t> ids = prefix;
      const std::vector<int32_t> suffix = drawn_ids(options.suffix_len, coder, random);
      ids.insert(ids.end(), suffix.begin(), suffix.end());
      const int64_t wanted = std::ssize(ids);
      int64_t found = 0;
      DatasetRequest request;
      request.prompt = text_of_length(std::move(ids), wanted, coder, random, found);
      request.prompt_len = found + coder.added_tokens();
      request.output_len = options.repetition_output_len;
      inexact += found != wanted ? 1 : 0;
      requests.push_back(std::move(request));
    }
  }
  if (!options.disable_shuffle) std::shuffle(requests.begin(), requests.end(), random);
  warn_of_lengths(inexact, requests.size());
  return requests;
}

int64_t prompt_length(const std::string& prompt, const TextCoder* coder) {
  return coder == nullptr ? 0 : std::ssize(coder->encode(prompt)) + coder->added_tokens();
}

std::vector<DatasetRequest> sharegpt_requests(const DatasetOptions& options, const TextCoder* coder) {
  // Longer or shorter conversations are left out, as everybody does who reports figures of this dataset.
  constexpr int64_t kLeast = 4, kMostPrompt = 1024, kMostTotal = 2048;
  std::vector<Conversation> conversations = read_conversations(options.path);
  std::mt19937_64 random(options.seed);
  if (!options.disable_shuffle) std::shuffle(conversations.begin(), conversations.end(), random);
  std::vector<DatasetRequest> requests;
  for (Conversation& conversation : conversations) {
    if (std::ssize(requests) == options.num_prompts) break;
    DatasetRequest request;
    request.prompt_len = prompt_length(conversation.prompt, coder);
    const bool given = options.sharegpt_output_len.has_value();
    if (!given && coder == nullptr)
      throw invalid_argument("--dataset-name sharegpt: without a tokenizer --sharegpt-output-len is needed");
    const int64_t output = given ? *options.sharegpt_output_len : std::ssize(coder->encode(conversation.answer));
    if (coder != nullptr && (request.prompt_len < kLeast || request.prompt_len > kMostPrompt ||
                             request.prompt_len + output > kMostTotal || (!given && output < kLeast)))
      continue;
    request.output_len = static_cast<int32_t>(output);
    request.prompt = std::move(conversation.prompt);
    requests.push_back(std::move(request));
  }
  return requests;
}

std::vector<DatasetRequest> custom_requests(const DatasetOptions& options, const TextCoder* coder) {
  std::vector<CustomPrompt> prompts = read_custom_prompts(options.path);
  std::mt19937_64 random(options.seed);
  if (!options.disable_shuffle) std::shuffle(prompts.begin(), prompts.end(), random);
  std::vector<DatasetRequest> requests;
  bool bare = false;
  for (CustomPrompt& prompt : prompts) {
    if (std::ssize(requests) == options.num_prompts) break;
    DatasetRequest request;
    request.output_len = options.custom_output_len;
    if (options.custom_output_len == -1) {
      if (!prompt.output_tokens) {
        throw invalid_argument(fmt::format("{} line {}: has no output_tokens, which --custom-output-len -1 asks for",
                                           options.path, prompt.line),
                               "custom-output-len");
      }
      request.output_len = *prompt.output_tokens;
    }
    if (!options.skip_chat_template && coder != nullptr) {
      std::optional<std::string> message = coder->as_message(prompt.text);
      if (message) {
        prompt.text = *std::move(message);
      } else {
        bare = true;
      }
    }
    request.prompt_len = prompt_length(prompt.text, coder);
    request.prompt = std::move(prompt.text);
    requests.push_back(std::move(request));
  }
  if (bare) log_warning("there is no chat template here: prompts are sent as they are (--skip-chat-template)");
  return requests;
}

std::vector<DatasetRequest> burst_requests(const DatasetOptions& options, const TextCoder& coder) {
  std::vector<BurstRow> rows = read_burst_rows(options.path);
  std::mt19937_64 random(options.seed);
  std::shuffle(rows.begin(), rows.end(), random);
  if (std::ssize(rows) > options.num_prompts) rows.resize(static_cast<size_t>(options.num_prompts));
  const std::vector<int32_t>& ordinary = coder.ordinary_ids();
  std::vector<DatasetRequest> requests;
  int64_t inexact = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t wanted = std::max<int64_t>(rows[i].request_tokens - coder.added_tokens(), 1);
    std::vector<int32_t> ids;
    for (int64_t k = 0; k < wanted; ++k) ids.push_back(ordinary[(i + static_cast<uint64_t>(k)) % ordinary.size()]);
    int64_t found = 0;
    DatasetRequest request;
    request.prompt = text_of_length(std::move(ids), wanted, coder, random, found);
    request.prompt_len = found + coder.added_tokens();
    request.output_len = rows[i].response_tokens;
    inexact += found != wanted ? 1 : 0;
    requests.push_back(std::move(request));
  }
  warn_of_lengths(inexact, requests.size());
  return requests;
}

// Begins again from the first until there are as many as asked for.
void oversample(std::vector<DatasetRequest>& requests, const DatasetOptions& options) {
  if (requests.empty()) {
    throw invalid_argument(
        fmt::format("--dataset-path {}: has no usable prompt for --dataset-name {}", options.path, options.name),
        "dataset-path");
  }
  const auto wanted = static_cast<size_t>(options.num_prompts);
  if (requests.size() >= wanted) return;
  if (options.no_oversample) {
    log_warning(fmt::format("--num-prompts {}: the dataset has {} (--no-oversample)", wanted, requests.size()));
    return;
  }
  const size_t have = requests.size();
  requests.reserve(wanted);
  for (size_t i = have; i < wanted; ++i) requests.push_back(DatasetRequest(requests[i % have]));
}

double parse_ratio(const DatasetOptions& options, double value) {
  if (!(value >= 0 && value < 1)) {
    throw invalid_argument(
        fmt::format("--random-range-ratio {}: must be from 0 to below 1", options.random_range_ratio),
        "random-range-ratio");
  }
  return value;
}

}  // namespace

std::optional<std::string> TextCoder::as_message(const std::string&) const { return std::nullopt; }

std::unique_ptr<TextCoder> local_coder(const Tokenizer& tokenizer, const ChatFormat* chat) {
  return std::make_unique<LocalCoder>(tokenizer, chat);
}

LengthRange random_lengths(int64_t length, double ratio) {
  const auto middle = static_cast<double>(length);
  return {std::max<int64_t>(static_cast<int64_t>(std::floor(middle * (1 - ratio))), 1),
          std::max<int64_t>(static_cast<int64_t>(std::ceil(middle * (1 + ratio))), 1)};
}

double random_ratio(const DatasetOptions& options, const char* which) {
  const std::string& text = options.random_range_ratio;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc{} && end == text.data() + text.size()) return parse_ratio(options, value);
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) return parse_ratio(options, -1);
  const auto field = json.find(which);
  if (field == json.end()) return 0;
  return parse_ratio(options, field->is_number() ? field->get<double>() : -1);
}

void add_dataset_options(OptionTable& table, DatasetOptions& options) {
  table.group("Prompts");
  table.add("dataset-name", options.name, "where prompts come from")
      .choices({"random", "sharegpt", "custom", "prefix_repetition", "burstgpt"});
  table.add("dataset-path", options.path, "file of the dataset").value_name("FILE");
  table.add("num-prompts", options.num_prompts, "requests").range(1, kMany);
  table.add("input-len", options.input_len, "tokens in a prompt; instead of the dataset's own flag").range(1, kMany);
  table.add("output-len", options.output_len, "tokens to generate; instead of the dataset's own flag").range(1, kMany);
  table.add("no-oversample", options.no_oversample, "a dataset with fewer prompts is not repeated");
  table.add("disable-shuffle", options.disable_shuffle, "prompts in the order of the file");
  table.add("skip-chat-template", options.skip_chat_template, "custom: prompts are not put into the chat template");
  table.add("random-input-len", options.random_input_len, "random: tokens in a prompt").range(1, kMany);
  table.add("random-output-len", options.random_output_len, "random: tokens to generate").range(1, kMany);
  table
      .add("random-range-ratio", options.random_range_ratio,
           "random: lengths are uniform from 1 - this to 1 + this times what is given; a number, or "
           "{\"input\": .., \"output\": ..}")
      .value_name("RATIO");
  table
      .add("random-prefix-len", options.random_prefix_len,
           "random: tokens that all prompts begin with, beside their own")
      .range(0, kMany);
  table
      .add("sharegpt-output-len", options.sharegpt_output_len,
           "sharegpt: tokens to generate; else as many as the answer")
      .range(1, kMany);
  table.add("custom-output-len", options.custom_output_len, "custom: tokens to generate; -1: as each line says")
      .range(-1, kMany);
  table.add("prefix-repetition-prefix-len", options.prefix_len, "prefix_repetition: tokens in a prefix")
      .range(1, kMany);
  table.add("prefix-repetition-suffix-len", options.suffix_len, "prefix_repetition: tokens after it").range(1, kMany);
  table.add("prefix-repetition-num-prefixes", options.num_prefixes, "prefix_repetition: prefixes").range(1, kMany);
  table.add("prefix-repetition-output-len", options.repetition_output_len, "prefix_repetition: tokens to generate")
      .range(1, kMany);
}

void finish_dataset_options(DatasetOptions& options) {
  const auto copy = [](const std::optional<int64_t>& from, auto& to) {
    if (from) to = static_cast<int32_t>(*from);
  };
  copy(options.input_len, options.random_input_len);
  copy(options.output_len, options.random_output_len);
  copy(options.output_len, options.custom_output_len);
  copy(options.output_len, options.repetition_output_len);
  if (options.output_len) options.sharegpt_output_len = options.output_len;
  random_ratio(options, "input");
  random_ratio(options, "output");
  if (options.custom_output_len == 0)
    throw invalid_argument("--custom-output-len 0: must be at least 1, or -1", "custom-output-len");
  const bool made_up = options.name == "random" || options.name == "prefix_repetition";
  if (made_up && !options.path.empty()) {
    throw invalid_argument(
        fmt::format("--dataset-path {}: prompts of --dataset-name {} are made up", options.path, options.name),
        "dataset-path");
  }
  if (!made_up && options.path.empty())
    throw invalid_argument(fmt::format("--dataset-name {}: needs --dataset-path", options.name), "dataset-path");
  if (!made_up) check_readable(options.path);
}

bool needs_coder(const DatasetOptions& options) { return options.name != "custom" && options.name != "sharegpt"; }

std::vector<DatasetRequest> load_dataset(const DatasetOptions& options, const TextCoder* coder) {
  if (coder == nullptr && needs_coder(options)) {
    throw invalid_argument(fmt::format("--dataset-name {}: prompts can't be made without a tokenizer", options.name),
                           "dataset-name");
  }
  if (coder != nullptr && needs_coder(options) && coder->ordinary_ids().empty())
    throw invalid_argument("the tokenizer has no ordinary tokens to make prompts of", "tokenizer");
  if (options.name == "random") return random_requests(options, *coder);
  if (options.name == "prefix_repetition") return repetition_requests(options, *coder);
  std::vector<DatasetRequest> requests = options.name == "sharegpt" ? sharegpt_requests(options, coder)
                                         : options.name == "custom" ? custom_requests(options, coder)
                                                                    : burst_requests(options, *coder);
  oversample(requests, options);
  return requests;
}

}  // namespace quire
