// quire tokenize, quire detokenize: what a model's tokenizer makes of texts and ids. No weights are read.
#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <iostream>
#include <iterator>
#include <vector>

#include "base/error.h"
#include "base/quote.h"
#include "checkpoint/mapped_file.h"
#include "cli/command.h"
#include "cli/read_input.h"
#include "engine/load_tokenizer.h"
#include "text/unicode.h"

namespace quire {
namespace {

constexpr size_t kMaxBytes = size_t{512} << 20;

struct Options {
  std::string model;
  std::vector<std::string> files;
  bool ids = false, count = false, add_special_tokens = true, skip_special_tokens = false;
};

void add_shared_options(OptionTable& table, Options& options, const std::string& files_help) {
  table.group("Model");
  table
      .add("model", options.model,
           "folder, .gguf file or hub id, or a tokenizer.json or SentencePiece .model; without it the default model")
      .alias("tokenizer")
      .value_name("MODEL");
  table.group("Input and output");
  table.add("files", options.files, files_help).value_name("FILE");
  table.positional("files");
}

std::unique_ptr<Tokenizer> open_tokenizer(const Options& options) {
  return load_tokenizer(options.model.empty() ? default_model_path() : options.model);
}

// Calls visit(name, content) for each file, or for stdin if there is none; "-" is stdin too.
template <class Visit>
void for_each_input(const Options& options, Visit&& visit) {
  if (options.files.empty()) visit(std::string("standard input"), read_input("-", kMaxBytes));
  for (const std::string& file : options.files) {
    visit(file, read_input(file, kMaxBytes));
  }
}

void warn_about(const std::string& name, const std::string& text, const Options& options, const Tokenizer& tokenizer) {
  if (!is_valid_utf8(text)) {
    log_warning(fmt::format("{} is not UTF-8: what is broken counts as U+FFFD", name));
  }
  const std::string_view bos = tokenizer.token_string(tokenizer.bos_id());
  if (!options.add_special_tokens || bos.empty() || !text.starts_with(bos)) return;
  const auto with = tokenizer.encode("", true);
  if (!with.empty() && with.front() == tokenizer.bos_id()) {
    log_warning(fmt::format("{} begins with {}, and one more is put before it; --no-add-special-tokens leaves it out",
                            name, bos));
  }
}

// Numbers between anything of [ ] , and white space.
std::vector<int32_t> parse_ids(const std::string& name, std::string_view text) {
  std::vector<int32_t> ids;
  for (size_t at = 0; at < text.size();) {
    if (std::string_view(" \t\r\n,[]").find(text[at]) != std::string_view::npos) {
      ++at;
      continue;
    }
    int32_t id = 0;
    const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), id);
    const bool at_end =
        end == text.data() + text.size() || std::string_view(" \t\r\n,[]").find(*end) != std::string_view::npos;
    if (error != std::errc() || !at_end || id < 0) {
      const size_t length = text.find_first_of(" \t\r\n,[]", at) - at;
      throw invalid_argument(
          fmt::format("{}: {} is no token id (a list of numbers is wanted)", name, quote(text.substr(at, length), 20)));
    }
    ids.push_back(id);
    at = static_cast<size_t>(end - text.data());
  }
  return ids;
}

void check_ids(const std::string& name, const std::vector<int32_t>& ids, const Tokenizer& tokenizer) {
  for (const int32_t id : ids) {
    if (id >= tokenizer.vocab_size()) {
      throw invalid_argument(fmt::format("{}: token id {} is out of range, the vocabulary has {} tokens", name, id,
                                         tokenizer.vocab_size()));
    }
  }
}

}  // namespace

int tokenize_command(Arguments args) {
  Options options;
  OptionTable table("quire tokenize", "Print the tokens of a text, each with its id. No weights are read.");
  add_shared_options(table, options, "texts; without any, or for -, standard input");
  table.add("ids", options.ids, "print one JSON list of ids for each text");
  table.add("count", options.count, "print the number of tokens of each text");
  table.add("add-special-tokens", options.add_special_tokens, "BOS and so on, where the model asks for them");
  ParsedOptions parsed;
  if (!parse_options(table, args, LogLevel::kWarning, parsed)) return 0;

  const std::unique_ptr<Tokenizer> tokenizer = open_tokenizer(options);
  for_each_input(options, [&](const std::string& name, const std::string& text) {
    warn_about(name, text, options, *tokenizer);
    const std::vector<int32_t> ids = tokenizer->encode(text, options.add_special_tokens);
    if (options.ids) {
      print(fmt::format("[{}]\n", fmt::join(ids, ", ")));
    } else if (!options.count) {
      std::string lines;
      for (const int32_t id : ids) lines += fmt::format("{:>7} {}\n", id, quote(tokenizer->token_bytes(id), SIZE_MAX));
      print(lines);
    }
    if (options.count) print(fmt::format("{}\n", ids.size()));
  });
  return 0;
}

int detokenize_command(Arguments args) {
  Options options;
  OptionTable table("quire detokenize",
                    "Print the text of token ids, as JSON lists or bare numbers. No weights are read.");
  add_shared_options(table, options, "ids; without any, or for -, standard input");
  table.add("skip-special-tokens", options.skip_special_tokens, "leave out control tokens such as BOS");
  ParsedOptions parsed;
  if (!parse_options(table, args, LogLevel::kWarning, parsed)) return 0;

  const std::unique_ptr<Tokenizer> tokenizer = open_tokenizer(options);
  for_each_input(options, [&](const std::string& name, const std::string& text) {
    const std::vector<int32_t> ids = parse_ids(name, text);
    check_ids(name, ids, *tokenizer);
    print(tokenizer->decode(ids, options.skip_special_tokens));
  });
  return 0;
}

}  // namespace quire
