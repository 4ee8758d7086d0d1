// quire template: what a conversation becomes before it is tokenized. No weights are read.
#include <fmt/format.h>

#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "checkpoint/mapped_file.h"
#include "cli/command.h"
#include "cli/read_input.h"
#include "engine/parts.h"
#include "server/json_body.h"

namespace quire {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxBytes = size_t{64} << 20;

struct TemplateOptions {
  std::string model, tokenizer, chat_template;
  std::string messages = "-", tools, documents, values;
  std::string content_format = "auto";
  bool add_generation_prompt = true, continue_final_message = false;
};

Json parse_json(const std::string& text, const std::string& name) {
  constexpr const char* kKey = "json";
  try {
    Json json = parse_json_object(fmt::format("{{\"{}\":{}\n}}", kKey, text));
    if (json.size() == 1) return std::move(json[kKey]);
  } catch (const Error&) {
    // What is wrong is said below, under the name that the user knows.
  }
  throw invalid_argument(fmt::format("{}: not JSON of at most 64 levels", name));
}

Json read_json(const std::string& path, const std::string& flag) {
  return parse_json(read_input(path, kMaxBytes), fmt::format("{} {}", flag, path));
}

void add_options(OptionTable& table, TemplateOptions& options) {
  table.group("Model");
  table.add("model", options.model, "file, folder or hub id; without it the default model").value_name("MODEL");
  table.add("tokenizer", options.tokenizer, "take the chat template from here").value_name("MODEL");
  table
      .add("chat-template", options.chat_template,
           "Jinja template: a file, the text itself, or the name of one of the "
           "model's")
      .value_name("FILE");
  table.group("Conversation");
  table
      .add("messages", options.messages,
           "JSON file with a list of messages, or an object with messages and, if it likes, tools, documents and "
           "chat_template_kwargs; -: standard input")
      .value_name("FILE");
  table.add("tools", options.tools, "JSON file with a list of tools").value_name("FILE");
  table.add("documents", options.documents, "JSON file with a list of documents").value_name("FILE");
  table.add("chat-template-kwargs", options.values, "JSON object of template variables").value_name("JSON");
  table.add("add-generation-prompt", options.add_generation_prompt, "end with the beginning of an answer");
  table.add("continue-final-message", options.continue_final_message,
            "end where the last message's content ends; needs --no-add-generation-prompt");
  table
      .add(
          "chat-template-content-format", options.content_format,
          "messages' content in the template: string, openai (a list of parts), auto: parts if the template loops over "
          "them")
      .choices({"auto", "string", "openai"});
  table.positional("model");
}

// An array, an object or null.
Json take(Json& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() ? Json() : std::move(*found);
}

}  // namespace

int template_command(Arguments args) {
  TemplateOptions options;
  OptionTable table("quire template", "Print what a conversation becomes in a model's chat template.");
  add_options(table, options);
  ParsedOptions parsed;
  if (!parse_options(table, args, LogLevel::kWarning, parsed)) return 0;

  const std::string& named = options.tokenizer.empty() ? options.model : options.tokenizer;
  const TokenizerFiles files = open_tokenizer_files(named.empty() ? default_model_path() : named);
  const ChatFormat format = make_chat_format(files, options.chat_template);
  if (format.empty()) {
    throw invalid_argument("the model has no chat template; give one with --chat-template", "chat-template");
  }

  Json messages = read_json(options.messages, "--messages");
  Json values = options.values.empty() ? Json::object() : parse_json(options.values, "--chat-template-kwargs");
  if (!values.is_object()) throw invalid_argument("--chat-template-kwargs: expected a JSON object");
  Json tools;
  if (messages.is_object()) {
    tools = take(messages, "tools");
    if (const Json documents = take(messages, "documents"); !documents.is_null()) values["documents"] = documents;
    const Json more = take(messages, "chat_template_kwargs");
    if (more.is_object()) {
      for (const auto& [name, value] : more.items()) {
        if (!values.contains(name)) values[name] = value;
      }
    }
    messages = take(messages, "messages");
  }
  if (!options.tools.empty()) tools = read_json(options.tools, "--tools");
  if (!tools.is_null() && !tools.is_array()) throw invalid_argument("--tools: expected a list", "tools");
  if (!options.documents.empty()) values["documents"] = read_json(options.documents, "--documents");

  ChatFormat::Conversation conversation;
  conversation.messages = &messages;
  conversation.tools = tools.is_null() ? nullptr : &tools;
  conversation.values = &values;
  conversation.add_generation_prompt = options.add_generation_prompt;
  conversation.continue_final_message = options.continue_final_message;
  conversation.content_format = content_format_of(options.content_format);
  print(format.render(conversation));
  return 0;
}

}  // namespace quire
