#pragma once
// How near a whole engine on a GPU comes to what the card can do: the work that requests can't do without, over the
// rates measured in the same run.
#include <cstdint>
#include <span>
#include <string>

#include "bench/device.h"
#include "bench/requests.h"
#include "engine/engine.h"

namespace quire {

// What the model and the engine say of it.
struct EngineWork {
  double weight_bytes = 0;                   // read by each step
  double row_flop = 0, logits_row_flop = 0;  // of products
  double kv_token_bytes = 0;                 // of one token in all layers
  double pair_flop = 0;                      // of a query and a key that it sees, in all heads and layers
  int64_t max_num_batched_tokens = 1, max_num_seqs = 1;
};
EngineWork engine_work(const Engine& engine);

// Seconds below which the requests, n sequences for each, can't be done at these bytes and operations a second. All
// operations have to be done; all steps, one for each token of a sequence at least, read the weights, and decodes the
// keys and values that they see. Decodes begin where prompts end: what the last one has before it can't overlap with
// them.
struct EngineFloor {
  double seconds = 0;
  double step_seconds = 0;  // reading the weights once
  double flop = 0;          // of all products and attention
};
EngineFloor engine_floor(const EngineWork& work, std::span<const BenchRequest> requests, int32_t n, double read_rate,
                         double flop_rate);

// One line: the rates, the floor and the share of it that `seconds` is. Measures the GPU for a fifth of a second.
std::string limits_text(const Engine& engine, std::span<const BenchRequest> requests, int32_t n, double seconds);

}  // namespace quire
