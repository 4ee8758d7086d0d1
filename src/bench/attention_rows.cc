#include "bench/attention_rows.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <span>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "bench/device.h"
#include "engine/kv_cache.h"

namespace quire {
namespace {

constexpr int32_t kMostRequests = 65536, kMostContext = 1 << 24, kMostQueries = 1 << 20;
constexpr size_t kMostRows = 4096;

struct Heads {
  int32_t heads, kv_heads, head_dim;
};
constexpr Heads kSmall = {9, 3, 64};    // SmolLM2-135M
constexpr Heads kLarge = {32, 8, 128};  // Llama-3.1-8B

struct PresetRow {
  std::string_view preset;
  Heads heads;
  std::vector<RequestGroup> step;
  int32_t window = 0;
};

RequestGroup decode(int32_t requests, int32_t context_len) { return {requests, 1, context_len, context_len}; }
RequestGroup ragged(int32_t requests, int32_t context_len, int32_t last) { return {requests, 1, context_len, last}; }
RequestGroup evenly(int32_t requests, int32_t context_len, int32_t last) {
  return {requests, 1, context_len, last, RequestGroup::Spread::kDifferences};
}
RequestGroup prefill(int32_t requests, int32_t query_len) { return {requests, query_len, 0, 0}; }
RequestGroup extend(int32_t requests, int32_t query_len, int32_t context_len) {
  return {requests, query_len, context_len, context_len};
}

// The first ones make up the default, which a laptop does in a minute.
constexpr std::array<std::string_view, 7> kPresets = {"decode", "window", "prefill", "extend", "mixed", "sdpa", "h200"};
constexpr size_t kPresetsInDefault = 5;
constexpr std::string_view kDefault = "default";

std::vector<PresetRow> preset_rows() {
  return {
      {"decode", kSmall, {decode(1, 1024)}},
      {"decode", kSmall, {decode(1, 8192)}},
      {"decode", kSmall, {decode(8, 96)}},
      {"decode", kSmall, {decode(8, 2048)}},
      {"decode", kSmall, {decode(8, 8192)}},
      {"decode", kSmall, {decode(64, 1024)}},
      {"decode", kSmall, {ragged(64, 128, 4096)}},
      {"decode", kLarge, {decode(1, 8192)}},
      {"decode", kLarge, {decode(8, 2048)}},
      {"window", kSmall, {decode(64, 4096)}, 512},
      {"window", kSmall, {prefill(1, 2048)}, 512},
      {"prefill", kSmall, {prefill(1, 512)}},
      {"prefill", kSmall, {prefill(1, 2048)}},
      {"prefill", kSmall, {prefill(8, 256)}},
      {"prefill", kLarge, {prefill(1, 2048)}},
      {"extend", kSmall, {extend(1, 512, 7680)}},
      {"extend", kSmall, {extend(8, 64, 2048)}},
      {"extend", kSmall, {extend(4, 16, 4096)}},
      {"extend", kLarge, {extend(1, 512, 3584)}},
      {"mixed", kSmall, {decode(24, 2048), extend(2, 256, 2048), prefill(1, 512)}},
      // The rows of bench/attention/sdpa.py.
      {"sdpa", kSmall, {decode(8, 2048)}},
      {"sdpa", kSmall, {prefill(1, 2048)}},
      {"sdpa", kLarge, {decode(8, 2048)}},
      {"sdpa", kLarge, {prefill(1, 2048)}},
      // The rows that GPU kernels are compared by.
      {"h200", kLarge, {decode(1, 1024)}},
      {"h200", kLarge, {decode(1, 8192)}},
      {"h200", kLarge, {decode(1, 32768)}},
      {"h200", kLarge, {decode(8, 96)}},
      {"h200", kLarge, {decode(8, 1024)}},
      {"h200", kLarge, {decode(8, 8192)}},
      {"h200", kLarge, {decode(8, 32768)}},
      {"h200", kLarge, {decode(64, 1024)}},
      {"h200", kLarge, {decode(64, 8192)}},
      {"h200", kLarge, {decode(64, 32768)}},
      {"h200", kLarge, {decode(256, 1024)}},
      {"h200", kLarge, {decode(256, 8192)}},
      {"h200", kLarge, {decode(256, 32768)}},
      {"h200", kLarge, {evenly(64, 128, 16384)}},
      {"h200", kLarge, {decode(64, 32768)}, 4096},
      {"h200", kLarge, {prefill(1, 512)}},
      {"h200", kLarge, {prefill(1, 2048)}},
      {"h200", kLarge, {prefill(1, 8192)}},
      {"h200", kLarge, {prefill(1, 32768)}},
      {"h200", kLarge, {prefill(8, 2048)}},
      {"h200", kLarge, {extend(1, 2048, 30720)}},
      {"h200", kLarge, {extend(8, 512, 8192)}},
      {"h200", kLarge, {extend(4, 16, 4096)}},
      {"h200", kLarge, {decode(48, 4096), extend(2, 1024, 4096), prefill(1, 2048)}},
  };
}

std::vector<std::string> split(const WordList& list) {
  std::vector<std::string> words;
  for (const std::string& part : list) {
    for (size_t begin = 0; begin <= part.size();) {
      const size_t end = std::min(part.find(',', begin), part.size());
      words.push_back(part.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  return words;
}

std::vector<int32_t> numbers(const WordList& list, const char* flag, int32_t least, int32_t most) {
  std::vector<int32_t> values;
  for (const std::string& word : split(list)) {
    int32_t value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc{} || end != word.data() + word.size() || value < least || value > most)
      throw invalid_argument(fmt::format("--{} {}: must be from {} to {}", flag, word, least, most), flag);
    values.push_back(value);
  }
  return values;
}

// The words of a list, each one of `choices`.
std::vector<std::string> chosen(const WordList& list, const char* flag, std::span<const std::string_view> choices) {
  std::vector<std::string> words = split(list);
  for (const std::string& word : words) {
    if (std::find(choices.begin(), choices.end(), word) == choices.end())
      throw invalid_argument(fmt::format("--{} {}: must be one of {}", flag, word, fmt::join(choices, ", ")), flag);
  }
  return words;
}

std::vector<PresetRow> rows_of_presets(const WordList& presets) {
  std::vector<std::string_view> choices = {kDefault};
  choices.insert(choices.end(), kPresets.begin(), kPresets.end());
  const std::vector<std::string> names =
      chosen(presets.empty() ? WordList{std::string(kDefault)} : presets, "preset", choices);
  const auto named = [&](std::string_view name) { return std::find(names.begin(), names.end(), name) != names.end(); };
  const auto in_default = [](std::string_view name) {
    const auto end = kPresets.begin() + kPresetsInDefault;
    return std::find(kPresets.begin(), end, name) != end;
  };
  std::vector<PresetRow> rows;
  for (PresetRow& row : preset_rows()) {
    if (named(row.preset) || (named(kDefault) && in_default(row.preset))) rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<PresetRow> rows_of_shapes(const AttentionBenchmarkOptions& options) {
  const auto or_default = [](const WordList& list, const char* value) { return list.empty() ? WordList{value} : list; };
  const auto batches = numbers(or_default(options.batch, "8"), "batch", 1, kMostRequests);
  const auto contexts = numbers(or_default(options.context_len, options.query_len.empty() ? "2048" : "0"),
                                "context-len", 0, kMostContext);
  const auto queries = numbers(or_default(options.query_len, "1"), "query-len", 1, kMostQueries);
  if (batches.size() * contexts.size() * queries.size() > kMostRows)
    throw invalid_argument(fmt::format("--batch, --context-len, --query-len: more than {} rows", kMostRows), "batch");
  std::vector<PresetRow> rows;
  for (const int32_t query_len : queries) {
    for (const int32_t context_len : contexts) {
      for (const int32_t requests : batches) rows.push_back({"", kSmall, {extend(requests, query_len, context_len)}});
    }
  }
  return rows;
}

// The tokens and contexts of like requests, without the phase.
std::string group_shape(const RequestGroup& group) {
  std::string shape = fmt::format("{} x {}", group.requests, group.query_len);
  if (group.last_context_len > 0) shape += fmt::format(" on {}", group.context_len);
  if (group.last_context_len != group.context_len) shape += fmt::format(" to {}", group.last_context_len);
  if (group.spread == RequestGroup::Spread::kDifferences) shape += " evenly";
  return shape;
}

std::string step_name(const std::vector<RequestGroup>& step) {
  if (step.size() > 1) {
    std::vector<std::string> shapes(step.size());
    std::transform(step.begin(), step.end(), shapes.begin(), group_shape);
    return fmt::format("mixed {}", fmt::join(shapes, ", "));
  }
  const Phase phase = phase_of(step[0].context_len, step[0].query_len, 1);
  const char* name = phase == Phase::kDecode ? "decode" : phase == Phase::kExtend ? "extend" : "prefill";
  return fmt::format("{} {}", name, group_shape(step[0]));
}

std::string row_name(const AttentionRow& row) {
  const AttentionGroup& group = row.group;
  std::string name = fmt::format("{}/{}x{} {}", group.heads, group.kv_heads, group.head_dim, step_name(row.step));
  if (group.window > 0) name += fmt::format(", window {}", group.window);
  if (group.soft_cap > 0.0f) name += fmt::format(", soft cap {}", group.soft_cap);
  return name;
}

AttentionRow make_row(const AttentionBenchmarkOptions& options, const PresetRow& preset) {
  const auto either = [](int32_t given, int32_t otherwise) { return given > 0 ? given : otherwise; };
  AttentionRow row;
  row.step = preset.step;
  AttentionGroup& group = row.group;
  group.heads = either(options.heads, preset.heads.heads);
  group.kv_heads = either(options.kv_heads, preset.heads.kv_heads);
  group.head_dim = group.v_head_dim = either(options.head_dim, preset.heads.head_dim);
  group.scale = 1.0f / std::sqrt(static_cast<float>(group.head_dim));
  group.soft_cap = static_cast<float>(options.soft_cap);
  group.window = options.window >= 0 ? options.window : preset.window;
  group.block_size = options.block_size;
  row.name = row_name(row);
  return row;
}

}  // namespace

std::string strategy_name(ExtendStrategy strategy) { return strategy == ExtendStrategy::kGather ? "gather" : "paged"; }
std::string layout_name(KvLayout layout) { return layout == KvLayout::kShuffle ? "shuffle" : "plain"; }

void add_attention_benchmark_options(OptionTable& table, AttentionBenchmarkOptions& options) {
  table.group("Attention benchmark: what to measure");
  table
      .add("preset", options.preset,
           "rows: decode, window, prefill, extend, mixed; default: all of these; sdpa: those that bench/attention "
           "compares with PyTorch; h200: large ones")
      .value_name("NAME,...");
  table.add("batch", options.batch, "requests; with --context-len and --query-len, instead of presets")
      .value_name("N,...");
  table.add("context-len", options.context_len, "tokens of a request that are in the cache before the step")
      .value_name("N,...");
  table.add("query-len", options.query_len, "new tokens of a request").value_name("N,...");
  table.add("heads", options.heads, "query heads; auto: the preset's").word("auto", 0).range(1, 1024);
  table.add("kv-heads", options.kv_heads, "KV heads; auto: the preset's").word("auto", 0).range(1, 1024);
  table.add("head-dim", options.head_dim, "size of a head; auto: the preset's").word("auto", 0).range(1, 4096);
  table.add("window", options.window, "newest keys that a query sees; 0: all; auto: the preset's")
      .word("auto", -1)
      .range(0, kMostContext);
  table.add("soft-cap", options.soft_cap, "scores become cap * tanh(score / cap); 0: they do not").range(0, 1e6);
  table.group("Attention benchmark: how");
  add_device_option(table, options.device);
  table.add("block-size", options.block_size, "tokens in one block of the cache").range(1, 4096);
  table.add("kv-cache-dtype", options.kv_cache_dtype, "types of cached keys and values, as for serve")
      .value_name("NAME,...");
  table.add("kv-cache-layout", options.kv_cache_layout, "plain, shuffle").value_name("NAME,...");
  table.add("attention-backend", options.attention_backend, "backends; an unknown one lists them all")
      .value_name("NAME,...");
  table.add("extend-strategy", options.extend_strategy, "paged, gather").value_name("NAME,...");
  table
      .add("layers", options.layers,
           "caches that are visited in turn, as the layers of a model are; auto: enough to exceed the L3 cache "
           "(GPU: L2) twice, at most 32")
      .word("auto", 0)
      .range(1, 1024);
  table
      .add("iters", options.iters,
           "timed runs of a row, on the GPU graphs of runs; auto: half a second's (GPU: a tenth)")
      .word("auto", 0)
      .range(1, 1e6);
  add_threads_option(table, options.threads);
  table.add("check", options.check,
            "compare with a reference in double; exit code 1 where the error is above its bound");
  table.add("output-json", options.output_json, "file for the results").value_name("FILE");
}

std::vector<AttentionRow> attention_rows(const AttentionBenchmarkOptions& options,
                                         const std::string& automatic_kv_dtype) {
  const bool shapes = !options.batch.empty() || !options.context_len.empty() || !options.query_len.empty();
  if (shapes && !options.preset.empty()) {
    throw invalid_argument("--preset: can't go with --batch, --context-len or --query-len, which say what to measure",
                           "preset");
  }
  constexpr std::array<std::string_view, 2> kLayouts = {"plain", "shuffle"}, kStrategies = {"paged", "gather"};
  const auto layouts = chosen(options.kv_cache_layout, "kv-cache-layout", kLayouts);
  const auto strategies = chosen(options.extend_strategy, "extend-strategy", kStrategies);
  const auto dtypes = split(options.kv_cache_dtype), backends = split(options.attention_backend);
  const std::vector<PresetRow> presets = shapes ? rows_of_shapes(options) : rows_of_presets(options.preset);
  const size_t ways = layouts.size() * strategies.size() * dtypes.size() * backends.size();
  if (presets.size() * ways > kMostRows)
    throw invalid_argument(
        fmt::format("{} steps, each in {} ways: more than {} rows", presets.size(), ways, kMostRows));

  std::vector<AttentionRow> rows;
  for (const PresetRow& preset : presets) {
    AttentionRow row = make_row(options, preset);
    for (const std::string& dtype : dtypes) {
      row.kv_cache_dtype = dtype == "auto" ? automatic_kv_dtype : dtype;
      row.group.kv_dtype = parse_kv_dtype(row.kv_cache_dtype, DType::kF16);
      row.group.kv_scaling = kv_scaling_of(row.group.kv_dtype);
      for (const std::string& layout : layouts) {
        row.group.layout = layout == "shuffle" ? KvLayout::kShuffle : KvLayout::kPlain;
        for (const std::string& backend : backends) {
          row.backend = backend;
          for (const std::string& strategy : strategies) {
            row.strategy = strategy == "gather" ? ExtendStrategy::kGather : ExtendStrategy::kPaged;
            rows.push_back(row);
          }
        }
      }
    }
  }
  return rows;
}

}  // namespace quire
