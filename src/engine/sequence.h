#pragma once
// A request in the engine and its sequences: one for each of its n choices, scheduled on their own.
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/generation.h"
#include "kvcache/block_pool.h"

namespace quire {

using EngineClock = std::chrono::steady_clock;

struct Sequence;
class GenerationState;

struct EngineRequest {
  GenerateRequest input;           // checked and with its defaults filled in by admission
  uint64_t number = 0;             // order of arrival
  uint64_t seed = 0;               // of its random numbers
  std::vector<int32_t> stop_ids;   // EOS (unless ignored), then stop_token_ids
  int32_t eos_ids = 0;             // how many of stop_ids are EOS
  std::vector<double> hidden_sum;  // with pooling: over the tokens pooled so far
  std::vector<std::unique_ptr<Sequence>> sequences;
  std::shared_ptr<GenerationState> client;
  int32_t unfinished = 0;
  bool announced = false;        // the engine loop will notify its client at the end of the turn
  bool prompt_computed = false;  // by one of its sequences: the others find it in the prefix cache
  EngineClock::time_point arrival{};
};

enum class SequenceStatus : uint8_t { kWaiting, kRunning, kFinished };

struct Sequence {
  EngineRequest* request = nullptr;
  int32_t choice = 0;
  SequenceStatus status = SequenceStatus::kWaiting;

  std::vector<int32_t> tokens;  // prompt, then output, as far as it is known
  int64_t prompt_len = 0;
  int32_t pending = 0;            // further tokens: sampled by steps whose results are still to come
  int32_t sampled_row = 0;        // the newest of them among its step's results
  int64_t computed = 0;           // tokens whose K and V are in the cache, or will be after the steps under way
  int32_t table_row = -1;         // row of BlockTables while running
  int32_t blocks = 0;             // in that row
  std::vector<BlockHash> hashes;  // of the full blocks of `tokens`, as far as they were needed
  int64_t published = 0;          // blocks of the row that the prefix cache knows
  int64_t cached_tokens = 0;      // found in the prefix cache when first scheduled
  int32_t preemptions = 0;
  EngineClock::time_point first_scheduled{}, first_token{}, last_token{};

  int64_t known() const { return static_cast<int64_t>(tokens.size()); }
  int64_t length() const { return known() + pending; }
  int64_t output_len() const { return known() - prompt_len; }
  // Nothing is left to compute: the last token that was asked for is on its way.
  bool complete() const { return pending > 0 && length() >= prompt_len + *request->input.params.max_tokens; }
  std::span<const int32_t> prompt() const { return {tokens.data(), static_cast<size_t>(prompt_len)}; }
  std::span<const int32_t> output() const { return {tokens.data() + prompt_len, static_cast<size_t>(output_len())}; }
};

// What submit() hands to the engine thread. `input` has been admitted. eos_ids: the model's, each inside the
// vocabulary.
std::unique_ptr<EngineRequest> make_engine_request(GenerateRequest input, uint64_t number, uint64_t engine_seed,
                                                   const std::vector<int32_t>& eos_ids);

}  // namespace quire
