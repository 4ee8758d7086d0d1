#pragma once
// What `quire bench attention` measures: the rows of its table, from presets or from the shapes of flags.
#include <cstdint>
#include <string>
#include <vector>

#include "attention/backend.h"
#include "base/option_table.h"

namespace quire {

// Like requests of a step. Contexts rise from context_len to last_context_len in equal ratios or differences.
struct RequestGroup {
  enum class Spread : uint8_t { kRatios, kDifferences };
  int32_t requests = 1, query_len = 1, context_len = 0, last_context_len = 0;
  Spread spread = Spread::kRatios;
};

// Words as given: a list of words, each a comma list.
using WordList = std::vector<std::string>;

struct AttentionBenchmarkOptions {
  std::string device = "auto";                    // gpu::device_names()
  WordList preset;                                // empty = the default, unless there are shapes
  WordList batch, context_len, query_len;         // one of them given: every combination is a row, and no preset
  int32_t heads = 0, kv_heads = 0, head_dim = 0;  // 0 = the preset's, or 9, 3, 64
  int32_t block_size = 16;
  WordList kv_cache_dtype = {"auto"}, kv_cache_layout = {"plain"}, attention_backend = {"auto"},
           extend_strategy = {"paged"};
  int32_t window = -1;    // -1 = the preset's, 0 = none
  double soft_cap = 0.0;  // 0 = none
  int32_t layers = 0;     // caches visited in turn; 0 = auto
  int32_t iters = 0;      // 0 = auto
  int32_t threads = 0;    // 0 = all that this process may use
  bool check = false;
  std::string output_json;  // empty = none
};

void add_attention_benchmark_options(OptionTable& table, AttentionBenchmarkOptions& options);

// One row: a step, and how it is computed.
struct AttentionRow {
  std::string name;                // heads and step, "9/3x64 decode 8 x 1 on 2048": the same for all ways to compute it
  std::vector<RequestGroup> step;  // in the order decode, extend, prefill
  AttentionGroup group;
  std::string kv_cache_dtype;  // as named by flags; auto is resolved
  std::string backend;         // as given; "auto" = the best that fits
  ExtendStrategy strategy = ExtendStrategy::kPaged;
};

// automatic_kv_dtype: what --kv-cache-dtype auto is. Throws Error(kInvalidArgument) naming flag, value and limit.
std::vector<AttentionRow> attention_rows(const AttentionBenchmarkOptions& options,
                                         const std::string& automatic_kv_dtype = "float16");

std::string strategy_name(ExtendStrategy strategy);
std::string layout_name(KvLayout layout);

}  // namespace quire
