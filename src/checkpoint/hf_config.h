#pragma once
// config.json and generation_config.json of a Hugging Face folder.
#include <string>
#include <string_view>

#include "checkpoint/checkpoint.h"

namespace quire {

// text: the file's content; path: its name for messages. Throws Error(kInvalidArgument) naming the field.
ModelConfig parse_hf_config(std::string_view text, const std::string& path);
GenerationConfig parse_generation_config(std::string_view text, const std::string& path);
// generation_config.json may name more end tokens than config.json: they are added.
void add_eos_tokens(std::string_view generation_config, const std::string& path, ModelConfig& config);

}  // namespace quire
