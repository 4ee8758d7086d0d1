#include "cli/talk.h"

#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <iostream>

#include "base/error.h"
#include "engine/options.h"

namespace quire {
namespace {

// Everything shown has been flushed and nothing needs saving, so the process may end inside the handler.
void exit_at_once(int) { _exit(0); }

// A line of stdin without its end; false at the end of stdin. Throws Error past the limit.
bool read_line(std::string& line) {
  constexpr size_t kMaxLineBytes = 16 << 20;
  line.clear();
  for (int c; (c = std::cin.get()) != std::char_traits<char>::eof();) {
    if (c == '\n') return true;
    if (line.size() == kMaxLineBytes)
      throw invalid_argument(fmt::format("a line of the input is longer than the limit of {} bytes", kMaxLineBytes));
    line += static_cast<char>(c);
  }
  return !line.empty();
}

}  // namespace

void add_talk_options(OptionTable& table, TalkOptions& options) {
  table.group("Talking");
  table.add("quick", options.quick, "answer this text and end").short_name("q").value_name("TEXT");
  table
      .add("url", options.url,
           "talk to this server, such as http://localhost:8000/v1; without it the model is loaded here")
      .value_name("URL");
  table.add("model-name", options.model_name, "the server's model; without it the first one it lists")
      .value_name("NAME");
  table.add("api-key", options.api_key, "key for the server").env("OPENAI_API_KEY").value_name("KEY");
  table.add("stats", options.stats, "print the time to the first token and the tokens per second of each answer");
  table.group("Sampling (default: the model's)");
  SamplingChoice& sampling = options.sampling;
  table.add("temperature", sampling.temperature, "0: always the most likely token").range(0, 100);
  table.add("top-p", sampling.top_p, "smallest set of tokens with this probability").range(0, 1);
  table.add("top-k", sampling.top_k, "this many of the most likely tokens; 0, -1: all").range(-1, 1 << 30);
  table.add("min-p", sampling.min_p, "tokens at least this likely, relative to the best").range(0, 1);
  table.add("repetition-penalty", sampling.repetition_penalty, "above 1: repeat less").range(0.01, 100);
  table.add("max-tokens", sampling.max_tokens, "longest answer").range(1, 1 << 30);
  add_engine_options(table, options.engine);
  table.positional("model");
}

std::unique_ptr<TextModel> open_text_model(const ParsedOptions& parsed, TalkOptions& options) {
  struct sigaction action {};
  action.sa_handler = exit_at_once;
  sigaction(SIGINT, &action, nullptr);
  options.has_quick = parsed.is_set("quick");
  std::unique_ptr<TextModel> model;
  if (options.url.empty()) {
    finish_engine_options(options.engine);
    options.engine.log_stats = false;
    if (!parsed.is_set("progress")) options.engine.show_progress = isatty(STDERR_FILENO) != 0;
    model = load_local_model(options.engine);
  } else {
    if (parsed.is_set("model")) log_warning("with --url the server's model answers; --model-name chooses among them");
    if (parsed.is_set("seed")) options.sampling.seed = static_cast<int64_t>(options.engine.seed & INT64_MAX);
    model = connect_to_model(options.url, options.model_name, options.api_key);
  }
  print(fmt::format("Using model: {}\n", model->name()));
  return model;
}

std::string stats_text(const Answer& answer) {
  const double rate = answer.seconds > 0 ? static_cast<double>(answer.tokens) / answer.seconds : 0;
  return fmt::format("TTFT: {:.2f} ms\nTPS:  {:.2f} tokens/s ({} tokens in {:.2f}s)\n",
                     answer.first_token_seconds * 1e3, rate, answer.tokens, answer.seconds);
}

int run_talk(const TalkOptions& options, std::string_view invitation,
             const std::function<Answer(const std::string& line)>& ask) {
  const auto answer_one = [&](const std::string& line) {
    const Answer answer = ask(line);
    print("\n");
    if (options.stats) print(stats_text(answer));
  };
  if (options.has_quick) {
    answer_one(options.quick);
    return 0;
  }
  print(fmt::format("{}\n", invitation));
  std::string line;
  for (;;) {
    print("> ");
    if (!read_line(line)) break;
    if (line.empty()) continue;
    try {
      answer_one(line);
    } catch (const Error& error) {
      print("\n");
      std::cerr << "quire: error: " << error.what() << std::endl;
    }
  }
  print("\n");
  return 0;
}

}  // namespace quire
