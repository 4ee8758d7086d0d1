#pragma once
// What `quire chat` and `quire complete` talk to: a model in this process or one behind a server.
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/config.h"

namespace quire {

struct ChatMessage {
  std::string role, content;
};

// Only what the user set; the rest is the model's or the server's default.
struct SamplingChoice {
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<int64_t> top_k, max_tokens;
  std::optional<int64_t> seed;
};

struct Answer {
  std::string text;  // without reasoning
  int64_t tokens = 0;
  double first_token_seconds = 0, seconds = 0;  // from the start of the request to the first and the last token
};

class TextModel {
 public:
  virtual ~TextModel() = default;
  virtual std::string name() const = 0;
  // Calls show with each new piece of whole UTF-8 text. Throw Error as the engine or the server does.
  using Show = std::function<void(std::string_view text)>;
  virtual Answer chat(const std::vector<ChatMessage>& messages, const SamplingChoice& sampling, const Show& show) = 0;
  virtual Answer complete(const std::string& prompt, const SamplingChoice& sampling, const Show& show) = 0;
};

// Loads the model into this process.
std::unique_ptr<TextModel> load_local_model(EngineConfig config);

// The server's `model_name`, or the first one it lists if that is empty.
std::unique_ptr<TextModel> connect_to_model(const std::string& url, const std::string& model_name,
                                            const std::string& api_key);

}  // namespace quire
