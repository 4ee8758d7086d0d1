#pragma once
// The shape of a model and what its checkpoint says of text, from a Hugging Face config.json or GGUF metadata alike.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace quire {

struct RopeConfig {
  double theta = 10000.0;
  bool interleaved = false;      // pairs (2i, 2i+1) as in GGUF's llama files; else (i, i + head_dim/2)
  std::string type = "default";  // default, linear, llama3, yarn
  double factor = 1.0;
  double low_freq_factor = 1.0, high_freq_factor = 4.0;
  int64_t original_max_position = 8192;
  // yarn: frequencies are blended between so many turns over the original context.
  double beta_fast = 32.0, beta_slow = 1.0;
  bool truncate = true;                    // yarn: the blended dimensions begin and end at whole numbers
  std::optional<double> attention_factor;  // yarn; derived from `factor` if absent
  std::vector<float> freq_factors;         // GGUF rope_freqs.weight: inv_freq[i] /= freq_factors[i]; empty = none
};

struct ModelConfig {
  std::string architecture;  // "LlamaForCausalLM" (GGUF "llama" is mapped to it)
  std::string name;
  int64_t hidden_size = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0, intermediate_size = 0, vocab_size = 0;
  int64_t max_position = 0;
  double rms_norm_eps = 1e-5;
  bool tie_word_embeddings = false;
  bool attention_bias = false, mlp_bias = false;
  std::string hidden_act = "silu";
  RopeConfig rope;
  std::string
      dtype;  // the checkpoint's: "float32", "float16", "bfloat16"; "quantized" where linears are block-quantized
  std::optional<int32_t> bos_token_id;
  std::vector<int32_t> eos_token_ids;
};

// inv_freq[head_dim/2] with scaling applied. Sources: RoPE (arXiv 2104.09864), linear interpolation (arXiv 2306.15595),
// YaRN (arXiv 2309.00071) and the llama3 rule of Llama 3.1. Throws Error(kInvalidArgument) for another type.
std::vector<float> rope_inv_freq(const RopeConfig& rope, int64_t head_dim);

// What the cosines and sines are multiplied by (the same for q and k): 1 but for yarn.
double rope_attention_factor(const RopeConfig& rope);

// YaRN's 0.1 weight ln(factor) + 1; 1 where the context isn't stretched.
double yarn_magnitude(double factor, double weight = 1.0);

}  // namespace quire
