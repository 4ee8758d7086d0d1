#include "bench/requests.h"

#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <utility>

#include "base/error.h"
#include "text/detokenizer.h"

namespace quire {
namespace {

using Clock = std::chrono::steady_clock;

// Takes everything that a request generates.
void receive(const Engine& engine, Generation& generation, size_t choices, int32_t output_len, bool detokenize) {
  std::vector<int64_t> tokens(choices);
  std::vector<Detokenizer> texts;
  for (size_t choice = 0; detokenize && choice < choices; ++choice)
    texts.emplace_back(engine.tokenizer(), Detokenizer::Options{});
  std::vector<GenerationEvent> events;
  for (bool more = true; more;) {
    events.clear();
    more = generation.wait(events, std::chrono::seconds(1));
    for (const GenerationEvent& event : events) {
      if (event.finish == FinishReason::kError) throw Error(ErrorKind::kInternal, "a request failed: " + event.error);
      if (event.token < 0) continue;
      const auto choice = static_cast<size_t>(event.choice);
      ++tokens[choice];
      if (detokenize) texts[choice].push(event.token);
    }
  }
  for (const int64_t count : tokens) {
    if (count != output_len) {
      throw Error(ErrorKind::kInternal,
                  fmt::format("a sequence got {} tokens instead of the {} of its output length", count, output_len));
    }
  }
}

}  // namespace

std::vector<int32_t> random_prompt(int32_t length, int64_t ids, std::mt19937_64& random) {
  std::vector<int32_t> prompt(static_cast<size_t>(length));
  for (int32_t& id : prompt) id = static_cast<int32_t>((random() >> 32) * static_cast<uint64_t>(ids) >> 32);
  return prompt;
}

double run_requests(Engine& engine, std::span<const BenchRequest> requests, int32_t n, bool detokenize) {
  SamplingParams params;
  params.n = n;
  params.temperature = 1.0;
  params.top_p = 1.0;
  params.ignore_eos = true;

  const auto begin = Clock::now();
  std::vector<std::shared_ptr<Generation>> generations;
  generations.reserve(requests.size());
  for (const BenchRequest& bench_request : requests) {
    GenerateRequest request;
    request.prompt_ids = bench_request.prompt;
    request.params = params;
    request.params.max_tokens = bench_request.output_len;
    generations.push_back(engine.submit(std::move(request)));
  }
  for (size_t i = 0; i < requests.size(); ++i)
    receive(engine, *generations[i], static_cast<size_t>(n), requests[i].output_len, detokenize);
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

bool has_tokenizer(const Engine& engine) {
  try {
    engine.tokenizer();
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace quire
