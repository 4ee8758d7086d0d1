#include "bench/engine_limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "bench/gpu_limits.h"
#include "engine/kv_cache.h"
#include "model/model.h"

namespace quire {

EngineWork engine_work(const Engine& engine) {
  const Model::Work model = engine.model().work();
  const AttentionGroup group = engine.attention();
  const auto layers = static_cast<double>(engine.model_config().layers);
  EngineWork work;
  work.weight_bytes = model.weight_bytes;
  work.row_flop = model.row_flop;
  work.logits_row_flop = model.logits_row_flop;
  work.kv_token_bytes =
      static_cast<double>(kv_block_bytes(group, engine.model_config().layers)) / static_cast<double>(group.block_size);
  work.pair_flop = layers * group.heads * 2.0 * (group.head_dim + group.v_head_dim);
  work.max_num_batched_tokens = engine.config().max_num_batched_tokens;
  work.max_num_seqs = engine.config().max_num_seqs;
  return work;
}

EngineFloor engine_floor(const EngineWork& work, std::span<const BenchRequest> requests, int32_t n, double read_rate,
                         double flop_rate) {
  double rows = 0, outputs = 0, prompt_flop = 0, decode_flop = 0, decode_kv = 0;
  int32_t longest = 0, shortest = std::numeric_limits<int32_t>::max();
  bool alike = true;
  for (const BenchRequest& request : requests) {
    const auto prompt = static_cast<double>(request.prompt.size()), decodes = request.output_len - 1.0;
    const double seen = decodes * prompt + decodes * (decodes + 1) / 2;  // by the decodes of one sequence
    rows += prompt + n * decodes;
    outputs += n * (decodes + 1);
    prompt_flop += prompt * work.row_flop + work.logits_row_flop + prompt * (prompt + 1) / 2 * work.pair_flop;
    decode_flop += n * (decodes * (work.row_flop + work.logits_row_flop) + seen * work.pair_flop);
    decode_kv += n * seen * work.kv_token_bytes;
    longest = std::max(longest, request.output_len);
    shortest = std::min(shortest, request.output_len);
    alike = alike && request.prompt.size() == requests[0].prompt.size() && request.output_len == requests[0].output_len;
  }
  const double steps =
      std::max({static_cast<double>(longest), std::ceil(rows / static_cast<double>(work.max_num_batched_tokens)),
                std::ceil(outputs / static_cast<double>(work.max_num_seqs))});
  EngineFloor floor;
  floor.step_seconds = work.weight_bytes / read_rate;
  floor.flop = prompt_flop + decode_flop;
  const double all_reads = steps * floor.step_seconds + decode_kv / read_rate;
  // Sequences that are alike decode together; of others only the shortest output is sure to follow all prompts.
  const double last_reads = (shortest - 1) * floor.step_seconds + (alike ? decode_kv / read_rate : 0.0);
  const double last = std::max(last_reads, alike ? decode_flop / flop_rate : 0.0);
  const double prompts = std::max(prompt_flop / flop_rate, floor.step_seconds);
  floor.seconds = std::max({floor.flop / flop_rate, all_reads, prompts + last});
  return floor;
}

std::string limits_text(const Engine& engine, std::span<const BenchRequest> requests, int32_t n, double seconds) {
  DeviceLimits limits;
  try {
    limits = measure_gpu_limits(quick_gpu_scope());
  } catch (const Error& error) {
    return fmt::format("Limit: not measured: {}\n", error.what());
  }
  if (limits.products.empty()) return "Limit: not measured: too little memory of the GPU is free\n";
  constexpr double kGiga = 1e9, kTera = 1e12;
  const EngineWork work = engine_work(engine);
  const double read = limits.read_memory.best, product = limits.best_product();
  const EngineFloor floor = engine_floor(work, requests, n, read * kGiga, product * kGiga);
  return fmt::format(
      "Limit: {:.4f} seconds, {:.1f} % reached: {:.2f} GB of weights at {:.0f} GB/s are {:.3f} ms a step; {:.1f} TFLOP "
      "at {:.0f} TFLOP/s\n",
      floor.seconds, floor.seconds / seconds * 100, work.weight_bytes / kGiga, read, floor.step_seconds * 1e3,
      floor.flop / kTera, product * kGiga / kTera);
}

}  // namespace quire
