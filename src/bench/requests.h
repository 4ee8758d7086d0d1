#pragma once
// Requests of random tokens, as the benchmarks of a whole engine send them.
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "engine/engine.h"

namespace quire {

struct BenchRequest {
  std::vector<int32_t> prompt;
  int32_t output_len = 0;
};

// Token ids in [0, ids).
std::vector<int32_t> random_prompt(int32_t length, int64_t ids, std::mt19937_64& random);

// Seconds from the submission of all requests at once to the last token: n sequences for each at temperature 1, each of
// output_len tokens whatever they are. detokenize: the text is made too. Throws Error(kInternal) if a sequence fails or
// has another number of tokens.
double run_requests(Engine& engine, std::span<const BenchRequest> requests, int32_t n, bool detokenize);

bool has_tokenizer(const Engine& engine);  // dummy weights often come without one

}  // namespace quire
