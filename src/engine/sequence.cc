#include "engine/sequence.h"

#include <algorithm>
#include <utility>

namespace quire {
namespace {

// Room for outputs is made in advance up to this many tokens: beyond it a vector that doubles costs nothing, and a
// request that may fill a long context but rarely does holds no memory for it.
constexpr int64_t kReservedOutput = 1024;

// A request's random seed where it names none: the engine's seed and its number, mixed as in splitmix64.
uint64_t seed_of(uint64_t seed, uint64_t number) {
  uint64_t x = seed * 0x9e3779b97f4a7c15u + number + 0x632be59bd9b4e019u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

}  // namespace

std::unique_ptr<EngineRequest> make_engine_request(GenerateRequest input, uint64_t number, uint64_t engine_seed,
                                                   const std::vector<int32_t>& eos_ids) {
  auto request = std::make_unique<EngineRequest>();
  const SamplingParams& params = input.params;
  request->number = number;
  request->arrival = EngineClock::now();
  request->seed = params.seed ? static_cast<uint64_t>(*params.seed) : seed_of(engine_seed, number);
  if (!params.ignore_eos) request->stop_ids = eos_ids;
  request->eos_ids = static_cast<int32_t>(request->stop_ids.size());
  request->stop_ids.insert(request->stop_ids.end(), params.stop_token_ids.begin(), params.stop_token_ids.end());
  request->unfinished = params.n;
  request->sequences.reserve(static_cast<size_t>(params.n));
  for (int32_t choice = 0; choice < params.n; ++choice) {
    auto sequence = std::make_unique<Sequence>();
    sequence->request = request.get();
    sequence->choice = choice;
    const int64_t room = std::min(params.max_tokens.value_or(kReservedOutput), kReservedOutput);
    sequence->tokens.reserve(input.prompt_ids.size() + static_cast<size_t>(room));
    sequence->tokens = input.prompt_ids;
    sequence->prompt_len = sequence->length();
    request->sequences.push_back(std::move(sequence));
  }
  request->input = std::move(input);
  return request;
}

}  // namespace quire
