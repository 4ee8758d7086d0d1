#include "checkpoint/hf_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "checkpoint/readers.h"

namespace quire {
namespace {

using Json = nlohmann::json;

Json parse_object(std::string_view text, const std::string& path) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) throw invalid_argument(fmt::format("{} is not a JSON object", path), "model");
  return json;
}

// Typed reads of one object's fields; null counts as absent, as in transformers.
class Fields {
 public:
  Fields(const Json& json, const std::string& path) : json_(json), path_(path) {}

  const Json* find(const char* key) const {
    const auto it = json_.find(key);
    return it == json_.end() || it->is_null() ? nullptr : &*it;
  }
  Error refuse(const char* key, std::string_view what) const {
    return invalid_argument(fmt::format("{}: {} {}", path_, key, what), key);
  }
  int64_t size(const char* key, std::optional<int64_t> fallback = std::nullopt) const {
    const Json* value = find(key);
    if (value == nullptr) {
      if (!fallback) throw refuse(key, "is missing");
      return *fallback;
    }
    if (!value->is_number_integer()) throw refuse(key, "is not an integer");
    const auto result = value->get<int64_t>();
    check_size(result, refuse(key, fmt::format("is {}; 1 to {} is allowed", result, kMaxModelSize)));
    return result;
  }
  std::optional<double> number(const char* key) const {
    const Json* value = find(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_number()) throw refuse(key, "is not a number");
    return value->get<double>();
  }
  bool boolean(const char* key, bool fallback) const {
    const Json* value = find(key);
    if (value == nullptr) return fallback;
    if (!value->is_boolean()) throw refuse(key, "is not true or false");
    return value->get<bool>();
  }
  std::string string(const char* key, std::string fallback) const {
    const Json* value = find(key);
    if (value == nullptr) return fallback;
    if (!value->is_string()) throw refuse(key, "is not a string");
    return value->get<std::string>();
  }
  std::optional<int64_t> integer(const char* key) const {
    const Json* value = find(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_number_integer()) throw refuse(key, "is not an integer");
    return value->get<int64_t>();
  }
  // An id or a list of ids.
  std::vector<int32_t> ids(const char* key) const {
    std::vector<int32_t> result;
    const Json* value = find(key);
    if (value == nullptr) return result;
    for (const Json& id : value->is_array() ? *value : Json::array({*value})) {
      if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() > INT32_MAX)
        throw refuse(key, "holds something that is no token id");
      result.push_back(id.get<int32_t>());
    }
    return result;
  }

 private:
  const Json& json_;
  const std::string& path_;
};

// After the fields that every type has.
void read_yarn(const Fields& fields, int64_t max_position, RopeConfig& rope) {
  rope.factor = fields.number("factor").value_or(static_cast<double>(max_position) /
                                                 static_cast<double>(rope.original_max_position));
  rope.beta_fast = fields.number("beta_fast").value_or(rope.beta_fast);
  rope.beta_slow = fields.number("beta_slow").value_or(rope.beta_slow);
  rope.truncate = fields.boolean("truncate", true);
  rope.attention_factor = fields.number("attention_factor");
  const double scale = fields.number("mscale").value_or(0), all = fields.number("mscale_all_dim").value_or(0);
  if (!rope.attention_factor && scale != 0 && all != 0)
    rope.attention_factor = yarn_magnitude(rope.factor, scale) / yarn_magnitude(rope.factor, all);
}

void read_rope(const Fields& fields, const std::string& path, int64_t max_position, RopeConfig& rope) {
  rope.theta = fields.number("rope_theta").value_or(10000.0);
  // rope_parameters is the name since transformers 5.
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const Json* scaling = fields.find(key);
    if (scaling == nullptr) continue;
    if (!scaling->is_object()) throw fields.refuse(key, "is not an object");
    const Fields inner(*scaling, path);
    rope.theta = inner.number("rope_theta").value_or(rope.theta);
    rope.type = inner.string("rope_type", inner.string("type", "default"));
    rope.factor = inner.number("factor").value_or(1.0);
    rope.low_freq_factor = inner.number("low_freq_factor").value_or(1.0);
    rope.high_freq_factor = inner.number("high_freq_factor").value_or(4.0);
    const bool yarn = rope.type == "yarn";
    rope.original_max_position = inner.size("original_max_position_embeddings", yarn ? max_position : 8192);
    if (yarn) {
      read_yarn(inner, max_position, rope);
    } else if (rope.type != "default" && rope.type != "linear" && rope.type != "llama3") {
      throw fields.refuse(key, fmt::format("has rope_type {}; there are default, linear, llama3 and yarn", rope.type));
    }
  }
}

// Ids of special tokens become indices of logits.
void check_token_ids(const ModelConfig& config, const std::string& path) {
  const auto check = [&](const char* key, int32_t id) {
    if (id >= config.vocab_size) {
      throw invalid_argument(
          fmt::format("{}: {} is {}; the vocabulary has {} tokens", path, key, id, config.vocab_size), key);
    }
  };
  if (config.bos_token_id) check("bos_token_id", *config.bos_token_id);
  for (const int32_t id : config.eos_token_ids) check("eos_token_id", id);
}

}  // namespace

void check_config_numbers(const ModelConfig& config, const std::string& path) {
  const auto check = [&](const char* key, double value, bool good) {
    if (!good || !std::isfinite(value)) throw invalid_argument(fmt::format("{}: {} is {}", path, key, value), key);
  };
  check("rms_norm_eps", config.rms_norm_eps, config.rms_norm_eps >= 0 && config.rms_norm_eps < 1);
  check("rope_theta", config.rope.theta, config.rope.theta >= 1);
  check("rope factor", config.rope.factor, config.rope.factor > 0);
  check("low_freq_factor", config.rope.low_freq_factor, config.rope.low_freq_factor > 0);
  check("high_freq_factor", config.rope.high_freq_factor, config.rope.high_freq_factor > config.rope.low_freq_factor);
  if (config.rope.type == "yarn") {
    const RopeConfig& rope = config.rope;
    check("rope_theta", rope.theta, rope.theta > 1);  // its logarithm divides
    check("beta_slow", rope.beta_slow, rope.beta_slow > 0);
    check("beta_fast", rope.beta_fast, rope.beta_fast > rope.beta_slow);
    const double attention = rope_attention_factor(rope);
    check("attention_factor", attention, attention > 0 && attention < 1000);
  }
  if (config.head_dim % 2 != 0)
    throw invalid_argument(fmt::format("{}: head_dim {} is odd", path, config.head_dim), "head_dim");
  constexpr int64_t kMaxLayers = 10000, kMaxHeadSize = 65536;
  if (config.layers > kMaxLayers)
    throw invalid_argument(fmt::format("{}: {} layers; at most {} are read", path, config.layers, kMaxLayers));
  if (config.head_dim > kMaxHeadSize || config.heads > kMaxHeadSize) {
    throw invalid_argument(fmt::format("{}: {} heads of {}; at most {} of {} are read", path, config.heads,
                                       config.head_dim, kMaxHeadSize, kMaxHeadSize));
  }
}

ModelConfig parse_hf_config(std::string_view text, const std::string& path) {
  const Json json = parse_object(text, path);
  const Fields fields(json, path);
  ModelConfig config;
  const Json* architectures = fields.find("architectures");
  if (architectures == nullptr || !architectures->is_array() || architectures->empty() ||
      !(*architectures)[0].is_string()) {
    throw fields.refuse("architectures", "is missing");
  }
  config.architecture = (*architectures)[0].get<std::string>();
  config.hidden_size = fields.size("hidden_size");
  config.layers = fields.size("num_hidden_layers");
  config.heads = fields.size("num_attention_heads");
  config.kv_heads = fields.size("num_key_value_heads", config.heads);
  config.head_dim = fields.size("head_dim", std::max<int64_t>(1, config.hidden_size / config.heads));
  config.intermediate_size = fields.size("intermediate_size");
  config.vocab_size = fields.size("vocab_size");
  config.max_position = fields.size("max_position_embeddings", 2048);
  config.rms_norm_eps = fields.number("rms_norm_eps").value_or(1e-6);
  config.tie_word_embeddings = fields.boolean("tie_word_embeddings", false);
  config.attention_bias = fields.boolean("attention_bias", false);
  config.mlp_bias = fields.boolean("mlp_bias", false);
  config.hidden_act = fields.string("hidden_act", "silu");
  config.dtype = fields.string("dtype", fields.string("torch_dtype", "float32"));
  read_rope(fields, path, config.max_position, config.rope);
  const std::vector<int32_t> bos = fields.ids("bos_token_id");
  if (!bos.empty()) config.bos_token_id = bos[0];
  config.eos_token_ids = fields.ids("eos_token_id");
  check_config_numbers(config, path);
  check_token_ids(config, path);
  return config;
}

GenerationConfig parse_generation_config(std::string_view text, const std::string& path) {
  const Json json = parse_object(text, path);
  const Fields fields(json, path);
  GenerationConfig config;
  config.temperature = fields.number("temperature");
  config.top_p = fields.number("top_p");
  config.min_p = fields.number("min_p");
  config.repetition_penalty = fields.number("repetition_penalty");
  config.presence_penalty = fields.number("presence_penalty");
  config.frequency_penalty = fields.number("frequency_penalty");
  config.top_k = fields.integer("top_k");
  config.max_new_tokens = fields.integer("max_new_tokens");
  return config;
}

void add_eos_tokens(std::string_view generation_config, const std::string& path, ModelConfig& config) {
  const Json json = parse_object(generation_config, path);
  for (const int32_t id : Fields(json, path).ids("eos_token_id")) {
    auto& ids = config.eos_token_ids;
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  }
  check_token_ids(config, path);
}

}  // namespace quire
