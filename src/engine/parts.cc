#include "engine/parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <future>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/mapped_file.h"
#include "engine/load_tokenizer.h"
#include "engine/progress.h"

namespace quire {
namespace {

constexpr int64_t kDefaultQueueLimit = 1024;

// --chat-template: a template as such, or the file that holds it.
std::string template_source(const std::string& option) {
  if (option.find_first_of("{}\n") != std::string::npos) return option;
  constexpr size_t kMaxBytes = size_t{1} << 20;
  return read_text_file(option, kMaxBytes);
}

std::vector<SpecialToken> special_tokens(const TokenizerFiles& files) {
  if (!files.gguf) return read_special_tokens(files.tokenizer_config_json, files.special_tokens_map_json);
  const TokenizerFiles::Gguf& g = *files.gguf;
  std::vector<SpecialToken> out;
  for (const auto& [name, id] : std::initializer_list<std::pair<const char*, int32_t>>{
           {"bos_token", g.bos_id}, {"eos_token", g.eos_id}, {"unk_token", g.unk_id}, {"pad_token", g.pad_id}}) {
    if (id >= 0) out.emplace_back(name, g.tokens[static_cast<size_t>(id)]);
  }
  return out;
}

struct TextParts {
  std::unique_ptr<Tokenizer> tokenizer;
  ChatFormat chat_format;
};

TextParts load_text(const Checkpoint& checkpoint, const EngineConfig& config) {
  TokenizerFiles files =
      config.tokenizer.empty() ? checkpoint.read_tokenizer_files() : open_tokenizer_files(config.tokenizer);
  TextParts parts;
  parts.chat_format = make_chat_format(files, config.chat_template);
  parts.tokenizer = make_tokenizer(std::move(files));
  return parts;
}

}  // namespace

ChatFormat make_chat_format(const TokenizerFiles& files, const std::string& option) {
  ChatFormat::Templates templates;
  if (!option.empty()) {
    try {
      const auto named = files.chat_templates.find(option);
      templates.emplace("default", named != files.chat_templates.end() ? named->second : template_source(option));
    } catch (const Error& error) {
      throw invalid_argument(fmt::format("--chat-template: {}", error.what()), "chat-template");
    }
    return {std::move(templates), special_tokens(files)};
  }
  for (const auto& [name, source] : files.chat_templates) {
    try {
      templates.emplace(name, source);
    } catch (const Error& error) {  // only those who chat need it
      log_warning(fmt::format("the model's chat template '{}' can't be used: {}", name, error.what()));
    }
  }
  return {std::move(templates), special_tokens(files)};
}

void fill_in_defaults(EngineConfig& config, const ModelConfig& model, const EngineDevice& device) {
  if (config.max_model_len > model.max_position) {
    throw invalid_argument(fmt::format("--max-model-len {} is greater than the model's {} positions",
                                       config.max_model_len, model.max_position),
                           "max-model-len");
  }
  if (config.max_model_len <= 0) config.max_model_len = model.max_position;
  if (config.max_num_seqs <= 0) config.max_num_seqs = device.default_num_seqs();
  if (config.max_num_batched_tokens <= 0) config.max_num_batched_tokens = device.default_batched_tokens();
  // Limits before products: max_num_seqs x max_model_len is far inside 64 bits.
  config.max_num_batched_tokens = std::min(config.max_num_batched_tokens, config.max_num_seqs * config.max_model_len);
  if (!config.enable_chunked_prefill) {
    config.max_num_batched_tokens = std::max(config.max_num_batched_tokens, config.max_model_len);
  }
  config.max_num_seqs = std::min(config.max_num_seqs, config.max_num_batched_tokens);
  if (config.max_num_queued_reqs <= 0) config.max_num_queued_reqs = kDefaultQueueLimit;
  if (config.served_model_name.empty()) config.served_model_name.push_back(config.model);
}

EngineParts load_engine_parts(EngineConfig& config, const MakeEngineDevice& make_device) {
  if (config.model.empty()) {
    config.model = default_model_path();
    log_info(fmt::format("no --model given: using the default, {}", config.model));
  }
  const LoadFormat format = config.load_format == "dummy" ? LoadFormat::kDummy : LoadFormat::kAuto;
  const std::unique_ptr<Checkpoint> checkpoint = open_checkpoint(config.model, format, config.seed);
  EngineParts parts;
  parts.device = make_device(config);  // binds memory, so before anything large is allocated
  fill_in_defaults(config, checkpoint->config(), *parts.device);
  ModelOptions options;
  options.dtype = parts.device->compute_dtype(config.dtype);
  // Reads its own copy of the configuration: the flags are not written meanwhile, and need no lock.
  std::future<TextParts> text =
      std::async(std::launch::async, [&checkpoint, config] { return load_text(*checkpoint, config); });
  options.max_tokens = config.max_num_batched_tokens;
  options.max_logits_rows = config.max_num_seqs + kPromptLogprobRows;
  if (config.show_progress) options.progress = make_progress_bar("Loading weights");
  parts.model = load_model(*checkpoint, options, parts.device->make_model_device(*checkpoint, options));
  TextParts loaded = text.get();
  parts.tokenizer = std::move(loaded.tokenizer);
  parts.chat_format = std::move(loaded.chat_format);
  if (config.generation_config == "auto") parts.generation_config = checkpoint->generation_config();
  return parts;
}

}  // namespace quire
