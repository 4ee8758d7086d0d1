#pragma once
// What an engine is built from. Read from a model's files by load_engine_parts(), or put together by hand, as tests do.
#include <functional>
#include <memory>

#include "checkpoint/checkpoint.h"
#include "engine/config.h"
#include "engine/device.h"
#include "model/model.h"
#include "text/chat_format.h"
#include "text/tokenizer.h"

namespace quire {

struct EngineParts {
  std::unique_ptr<EngineDevice> device;
  std::unique_ptr<Model> model;
  std::unique_ptr<Tokenizer> tokenizer;  // null: the model works on token ids only
  ChatFormat chat_format;                // empty: no chat
  GenerationConfig generation_config;
};

// Opens the checkpoint, fills in the defaults of `config`, and loads weights and text parts side by side. Throws Error
// with one line that names the flag, file or limit.
// make_device: makes the device instead of make_engine_device().
using MakeEngineDevice = std::function<std::unique_ptr<EngineDevice>(EngineConfig&)>;
EngineParts load_engine_parts(EngineConfig& config, const MakeEngineDevice& make_device = make_engine_device);

// The chat templates of a model, or of --chat-template: a name of one of them, a file or Jinja. A template that cannot
// be used throws Error if it was asked for; else it is left out with a warning.
ChatFormat make_chat_format(const TokenizerFiles& files, const std::string& option);

// Values that depend on the model and the device, and limits that depend on each other (as vLLM has them). Does nothing
// the second time.
void fill_in_defaults(EngineConfig& config, const ModelConfig& model, const EngineDevice& device);

}  // namespace quire
