// A model in this process: template, tokenizer, engine, detokenizer.
#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "cli/text_model.h"
#include "engine/engine.h"
#include "text/detokenizer.h"

namespace quire {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kCompletionTokens = 16;  // the default of the completions API

class LocalModel final : public TextModel {
 public:
  explicit LocalModel(EngineConfig config) : engine_(std::move(config)) {}

  std::string name() const override { return engine_.model_name(); }

  Answer chat(const std::vector<ChatMessage>& messages, const SamplingChoice& sampling, const Show& show) override {
    if (engine_.chat_format().empty()) {
      throw invalid_argument("the model has no chat template; pass one with --chat-template, or use `quire complete`",
                             "chat-template");
    }
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const ChatMessage& message : messages) list.push_back({{"role", message.role}, {"content", message.content}});
    ChatFormat::Conversation conversation;
    conversation.messages = &list;
    // The template writes BOS itself.
    return generate(engine_.tokenizer().encode(engine_.chat_format().render(conversation), false), parameters(sampling),
                    show);
  }

  Answer complete(const std::string& prompt, const SamplingChoice& sampling, const Show& show) override {
    SamplingParams params = parameters(sampling);
    if (!sampling.max_tokens.has_value()) params.max_tokens = kCompletionTokens;
    return generate(engine_.tokenizer().encode(prompt, true), std::move(params), show);
  }

 private:
  // The user's values over the model's over the neutral ones.
  SamplingParams parameters(const SamplingChoice& sampling) const {
    const GenerationConfig& model = engine_.generation_config();
    SamplingParams params;
    const auto set = [](auto& target, const auto& users, const auto& models) {
      if (users.has_value()) {
        target = *users;
      } else if (models.has_value()) {
        target = *models;
      }
    };
    set(params.temperature, sampling.temperature, model.temperature);
    set(params.top_p, sampling.top_p, model.top_p);
    set(params.top_k, sampling.top_k, model.top_k);
    set(params.min_p, sampling.min_p, model.min_p);
    set(params.repetition_penalty, sampling.repetition_penalty, model.repetition_penalty);
    set(params.max_tokens, sampling.max_tokens, model.max_new_tokens);
    params.presence_penalty = model.presence_penalty.value_or(0.0);
    params.frequency_penalty = model.frequency_penalty.value_or(0.0);
    params.seed = sampling.seed;
    return params;
  }

  Answer generate(std::vector<int32_t> prompt_ids, SamplingParams params, const Show& show) {
    const auto begin = Clock::now();
    const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
    GenerateRequest request;
    request.prompt_ids = std::move(prompt_ids);
    request.params = std::move(params);
    const std::shared_ptr<Generation> generation = engine_.submit(std::move(request));
    Detokenizer detokenizer(engine_.tokenizer(), {});
    Answer answer;
    std::vector<GenerationEvent> events;
    const auto show_new = [&] {
      const std::string_view text = detokenizer.take();
      if (text.empty()) return;
      answer.text += text;
      show(text);
    };
    for (bool more = true; more;) {
      events.clear();
      more = generation->wait(events, std::chrono::seconds(1));
      for (const GenerationEvent& event : events) {
        if (event.finish == FinishReason::kError) throw Error(ErrorKind::kInternal, event.error);
        if (event.token < 0) continue;
        if (++answer.tokens == 1) answer.first_token_seconds = seconds();
        detokenizer.push(event.token);
      }
      show_new();
    }
    detokenizer.finish();
    show_new();
    answer.seconds = seconds();
    return answer;
  }

  Engine engine_;
};

}  // namespace

std::unique_ptr<TextModel> load_local_model(EngineConfig config) {
  return std::make_unique<LocalModel>(std::move(config));
}

}  // namespace quire
