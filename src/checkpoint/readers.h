#pragma once
// The readers behind open_checkpoint(), and the checks that they share.
#include <memory>
#include <string>

#include "base/error.h"
#include "checkpoint/checkpoint.h"

namespace quire {

constexpr int64_t kMaxModelSize = int64_t{1}
                                  << 31;  // no dimension of a model comes near it; products of two still fit 64 bits

inline void check_size(int64_t value, const Error& error) {
  if (value < 1 || value > kMaxModelSize) throw error;
}

// Finite and in range: eps, theta, rope factors.
void check_config_numbers(const ModelConfig& config, const std::string& path);

std::unique_ptr<Checkpoint> open_gguf(const std::string& path);
// A folder with config.json and safetensors; dummy: weights are made up from `seed`, only config.json is needed.
std::unique_ptr<Checkpoint> open_hugging_face(const std::string& folder, bool dummy, uint64_t seed);

// The tokenizer files of a folder; those that are absent stay empty.
TokenizerFiles read_tokenizer_folder(const std::string& path);
TokenizerFiles read_tokenizer_file(const std::string& path);  // tokenizer.json or a SentencePiece .model

}  // namespace quire
