#include "text/chat_format.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/error.h"
#include "text/jinja/strings.h"

namespace quire {
namespace {

using Json = nlohmann::ordered_json;

// Names under which the text of a model's thinking comes; the first is the one that templates read.
constexpr std::array<const char*, 3> kReasoningNames = {"reasoning_content", "thinking", "reasoning"};

// Marks where the final message ends. A template may trim the space at the end, which shows.
constexpr std::string_view kEndMark = "CONTINUE_FINAL_MESSAGE_TAG ";

std::string_view stripped(std::string_view text) { return jinja::strip(text, jinja::Side::kBoth); }

template <class AnyJson>
const AnyJson* find(const AnyJson& object, const char* name) {
  const auto entry = object.find(name);
  return entry == object.end() || entry->is_null() ? nullptr : &*entry;
}

// Without null values, which templates tend to print; thinking under the names that templates look for.
Json read_message(const Json& message) {
  if (!message.is_object()) throw invalid_argument("messages: expected a list of objects", "messages");
  const Json* reasoning = nullptr;
  for (const char* name : kReasoningNames) {
    if (!reasoning) reasoning = find(message, name);
  }
  Json out = Json::object();
  if (reasoning) out["thinking"] = *reasoning;
  for (const auto& [key, value] : message.items()) {
    if (!value.is_null()) out[key] = value;
  }
  if (reasoning) out[kReasoningNames[0]] = *reasoning;
  return out;
}

bool is_text_part(const Json& part) {
  const Json* const text = part.is_object() ? find(part, "text") : nullptr;
  return part.is_string() || (text && text->is_string());
}
const std::string& text_of(const Json& part) {
  return part.is_string() ? part.get_ref<const std::string&>() : part.at("text").get_ref<const std::string&>();
}

// Parts of content that are all text, joined by line ends; others stay as they are.
void join_parts(Json& content) {
  std::string text;
  for (const Json& part : content) {
    if (!is_text_part(part)) return;
    if (&part != &content.front()) text += '\n';
    text += text_of(part);
  }
  content = std::move(text);
}

void set_format(Json& message, ContentFormat format) {
  const auto content = message.find("content");
  if (content == message.end()) return;
  if (format == ContentFormat::kString && content->is_array()) {
    join_parts(*content);
  } else if (format == ContentFormat::kOpenAi && content->is_string()) {
    *content = Json::array({Json{{"type", "text"}, {"text", *content}}});
  } else if (format == ContentFormat::kOpenAi && content->is_array()) {
    for (Json& part : *content) {
      if (part.is_string()) part = Json{{"type", "text"}, {"text", part}};
    }
  }
}

// Puts the end mark behind the last message's text, which it gives back.
std::string mark_end(Json& message, const ChatTemplate& chat) {
  const auto fail = [](std::string_view reason) {
    return invalid_argument(fmt::format("continue_final_message is set but {}", reason), "continue_final_message");
  };
  const auto content = message.find("content");
  if (content == message.end()) throw fail("the final message has no content to continue");
  if (!chat.mentions("content")) throw fail("the chat template does not read the content of messages");
  Json* text = &*content;
  if (content->is_array()) {
    text = nullptr;
    for (Json& part : *content) {
      if (is_text_part(part)) text = part.is_string() ? &part : &part["text"];
    }
  }
  if (!text || !text->is_string()) throw fail("the final message has no text to continue");
  std::string marked = text->get<std::string>();
  std::string end = marked;
  marked += kEndMark;
  *text = std::move(marked);
  return end;
}

void cut_at_mark(std::string& prompt, std::string_view final_text) {
  const size_t at = prompt.rfind(stripped(kEndMark));
  if (at == std::string::npos || prompt.find(stripped(final_text)) == std::string::npos) {
    throw invalid_argument(
        "continue_final_message is set but the final message does not appear in the chat after applying the chat "
        "template! This can happen if the chat template deletes portions of the final message.",
        "continue_final_message");
  }
  const bool kept_space = std::string_view(prompt).substr(at).starts_with(kEndMark);
  prompt.resize(at);
  if (!kept_space) prompt.resize(jinja::strip(prompt, jinja::Side::kRight).size());
}

}  // namespace

ContentFormat content_format_of(std::string_view name) {
  if (name == "string") return ContentFormat::kString;
  return name == "openai" ? ContentFormat::kOpenAi : ContentFormat::kAuto;
}

ChatFormat::ChatFormat(Templates templates, std::vector<SpecialToken> special_tokens)
    : templates_(std::move(templates)), special_tokens_(std::move(special_tokens)) {}

const ChatTemplate& ChatFormat::choose(const Conversation& conversation) const {
  if (conversation.tools) {
    if (const auto found = templates_.find("tool_use"); found != templates_.end()) return found->second;
  }
  if (const auto found = templates_.find("default"); found != templates_.end()) return found->second;
  if (templates_.empty()) throw invalid_argument("the model has no chat template", "chat_template");
  std::vector<std::string_view> names;
  for (const auto& [name, chat] : templates_) names.push_back(name);
  throw invalid_argument(fmt::format("the model has several chat templates and none is the default; name one of {}",
                                     fmt::join(names, ", ")),
                         "chat_template");
}

std::string ChatFormat::render(const Conversation& conversation) const {
  std::optional<ChatTemplate> given;
  const ChatTemplate* chat = nullptr;
  if (conversation.chat_template.empty()) {
    chat = &choose(conversation);
  } else if (const auto found = templates_.find(conversation.chat_template); found != templates_.end()) {
    chat = &found->second;
  } else {
    chat = &given.emplace(conversation.chat_template);
  }

  if (!conversation.messages || !conversation.messages->is_array() || conversation.messages->empty()) {
    throw invalid_argument("messages: expected a list of at least one message", "messages");
  }
  if (conversation.continue_final_message && conversation.add_generation_prompt) {
    throw invalid_argument("continue_final_message and add_generation_prompt exclude each other",
                           "continue_final_message");
  }
  if (const Json* documents = conversation.values ? find(*conversation.values, "documents") : nullptr) {
    const bool good = documents->is_array() && std::all_of(documents->begin(), documents->end(),
                                                           [](const Json& document) { return document.is_object(); });
    if (!good) throw invalid_argument("documents: expected a list of objects", "documents");
  }
  ContentFormat format = conversation.content_format;
  if (format == ContentFormat::kAuto) {
    format = chat->loops_over_content() ? ContentFormat::kOpenAi : ContentFormat::kString;
  }
  Json messages = Json::array();
  for (const Json& message : *conversation.messages) {
    messages.push_back(read_message(message));
    set_format(messages.back(), format);
  }

  std::string final_text;
  if (conversation.continue_final_message) final_text = mark_end(messages.back(), *chat);
  ChatTemplate::Input input;
  input.messages = &messages;
  input.tools = conversation.tools;
  input.extra = conversation.values;
  input.add_generation_prompt = conversation.add_generation_prompt;
  input.special_tokens = special_tokens_;
  input.now = conversation.now;
  std::string prompt = chat->render(input);
  if (conversation.continue_final_message) cut_at_mark(prompt, final_text);
  return prompt;
}

std::vector<SpecialToken> read_special_tokens(std::string_view tokenizer_config_json,
                                              std::string_view special_tokens_map_json) {
  // Not Json, which looks for each new key among all there are; and not copied, which takes the stack for deep values.
  using FileJson = nlohmann::json;
  const auto parse = [](std::string_view text) {
    FileJson json = text.empty() ? FileJson::object() : FileJson::parse(text, nullptr, false);
    if (!json.is_object()) json = FileJson::object();
    return json;
  };
  const FileJson config = parse(tokenizer_config_json), map = parse(special_tokens_map_json);
  std::vector<SpecialToken> out;
  for (const char* name :
       {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
    const FileJson* token = config.contains(name) ? find(config, name) : find(map, name);
    if (token && token->is_object()) token = find(*token, "content");  // an added token with its flags
    if (token && token->is_string()) out.emplace_back(name, token->get<std::string>());
  }
  return out;
}

}  // namespace quire
