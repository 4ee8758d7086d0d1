// A model behind an OpenAI-shaped server.
#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "cli/text_model.h"
#include "client/http_client.h"

namespace quire {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

// The string at json[key], or "" if it is absent, null or something else.
std::string text_at(const Json& json, const char* key) {
  const auto field = json.find(key);
  return field != json.end() && field->is_string() ? field->get<std::string>() : std::string();
}

HttpClient::Options with_key(const std::string& api_key) {
  HttpClient::Options options;
  options.bearer_token = api_key;
  return options;
}

class RemoteModel final : public TextModel {
 public:
  RemoteModel(const std::string& url, std::string model_name, const std::string& api_key)
      : client_(parse_http_url(url, "url"), with_key(api_key)), name_(std::move(model_name)) {
    if (name_.empty()) name_ = first_model();
  }

  std::string name() const override { return name_; }

  Answer chat(const std::vector<ChatMessage>& messages, const SamplingChoice& sampling, const Show& show) override {
    Json body = request(sampling);
    body["messages"] = Json::array();
    for (const ChatMessage& message : messages)
      body["messages"].push_back({{"role", message.role}, {"content", message.content}});
    return stream("/chat/completions", body, show);
  }

  Answer complete(const std::string& prompt, const SamplingChoice& sampling, const Show& show) override {
    Json body = request(sampling);
    body["prompt"] = prompt;
    return stream("/completions", body, show);
  }

 private:
  std::string first_model() const {
    const Json list = Json::parse(client_.get("/models"), nullptr, false);
    if (list.is_object() && list.contains("data") && list["data"].is_array()) {
      for (const Json& model : list["data"]) {
        if (model.is_object() && !text_at(model, "id").empty()) return text_at(model, "id");
      }
    }
    throw Error(ErrorKind::kUnavailable,
                fmt::format("{} lists no model; name one with --model-name", client_.url_of("/models")), "url");
  }

  Json request(const SamplingChoice& sampling) const {
    Json body = {{"model", name_}, {"stream", true}, {"stream_options", {{"include_usage", true}}}};
    const auto set = [&](const char* key, const auto& value) {
      if (value.has_value()) body[key] = *value;
    };
    set("temperature", sampling.temperature);
    set("top_p", sampling.top_p);
    set("top_k", sampling.top_k);
    set("min_p", sampling.min_p);
    set("repetition_penalty", sampling.repetition_penalty);
    set("max_tokens", sampling.max_tokens);
    set("seed", sampling.seed);
    return body;
  }

  Answer stream(const std::string& path, const Json& body, const Show& show) const {
    const auto begin = Clock::now();
    const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
    Answer answer;
    bool thinking = false;
    int64_t pieces = 0;
    const auto read_choice = [&](const Json& choice) {
      const auto delta = choice.find("delta");
      const Json& source = delta != choice.end() && delta->is_object() ? *delta : choice;
      std::string reasoning = text_at(source, "reasoning");
      if (reasoning.empty()) reasoning = text_at(source, "reasoning_content");
      std::string text = text_at(source, "content");
      if (text.empty()) text = text_at(source, "text");
      if (reasoning.empty() && text.empty()) return;
      if (++pieces == 1) answer.first_token_seconds = seconds();
      if (!reasoning.empty()) {
        show((thinking ? "" : "<think>\n") + reasoning);
        thinking = true;
      }
      if (text.empty()) return;
      if (thinking) show("\n</think>\n");
      thinking = false;
      answer.text += text;
      show(text);
    };
    client_.post_stream(path, body.dump(-1, ' ', false, Json::error_handler_t::replace), [&](std::string_view data) {
      const Json event = Json::parse(data, nullptr, false);
      if (!event.is_object())
        throw Error(ErrorKind::kInternal, client_.url_of(path) + ": a streamed event is not a JSON object", "url");
      if (const auto error = event.find("error"); error != event.end()) {
        throw Error(ErrorKind::kInternal,
                    "the server broke off: " + (error->is_object() ? text_at(*error, "message") : error->dump()),
                    "url");
      }
      const auto choices = event.find("choices");
      if (choices != event.end() && choices->is_array() && !choices->empty() && choices->front().is_object())
        read_choice(choices->front());
      const auto usage = event.find("usage");
      if (usage != event.end() && usage->is_object() && usage->contains("completion_tokens") &&
          (*usage)["completion_tokens"].is_number_integer()) {
        answer.tokens = (*usage)["completion_tokens"];
      }
    });
    if (thinking) show("\n</think>\n");
    if (answer.tokens == 0) answer.tokens = pieces;  // a server that counts nothing: about one token in each piece
    answer.seconds = seconds();
    return answer;
  }

  HttpClient client_;
  std::string name_;
};

}  // namespace

std::unique_ptr<TextModel> connect_to_model(const std::string& url, const std::string& model_name,
                                            const std::string& api_key) {
  return std::make_unique<RemoteModel>(url, model_name, api_key);
}

}  // namespace quire
