#include "text/chat_format.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "text/chat_template_cases.h"

namespace quire {
namespace {

using Json = nlohmann::ordered_json;

ChatFormat format_of(const std::map<std::string, std::string>& sources, std::vector<SpecialToken> tokens = {}) {
  ChatFormat::Templates templates;
  for (const auto& [name, source] : sources) templates.emplace(name, source);
  return {std::move(templates), std::move(tokens)};
}

std::string error_of(const ChatFormat& format, const ChatFormat::Conversation& conversation) {
  try {
    return "[" + format.render(conversation) + "]";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInvalidArgument);
    return error.what();
  }
}

// What transformers' apply_chat_template makes of each; made by tools/make_chat_golden.py.
TEST(ChatFormat, AsTransformers) {
  const Json data = read_text_data("chat_format_golden.json");
  const Json templates = read_text_data("chat_template_cases.json").at("templates");
  const std::tm now = clock_of(data.at("clock"));
  std::map<std::string, ChatFormat> formats;
  for (const auto& [model, tokens] : data.at("special_tokens").items()) {
    formats.emplace(model, format_of({{"default", templates.at(model)}}, read_special_tokens(tokens.dump(), "")));
  }
  ASSERT_EQ(formats.size(), 5u);
  for (const Json& test : data.at("cases")) {
    const std::string id = test.at("model").get<std::string>() + "." + test.at("messages").get<std::string>() + "." +
                           test.at("variant").get<std::string>();
    Json values = data.at("variants").at(test.at("variant"));
    const Json tools = values.value("tools", Json());
    ChatFormat::Conversation conversation;
    conversation.messages = &data.at("messages").at(test.at("messages"));
    if (!tools.is_null()) conversation.tools = &tools;
    conversation.add_generation_prompt = values.at("add_generation_prompt");
    conversation.continue_final_message = values.value("continue_final_message", false);
    for (const char* name : {"tools", "add_generation_prompt", "continue_final_message"}) values.erase(name);
    conversation.values = &values;
    conversation.now = &now;
    try {
      const std::string prompt = formats.at(test.at("model")).render(conversation);
      EXPECT_EQ(prompt, test.value("out", "ERROR")) << id << " " << test.value("error", "");
    } catch (const Error& error) {
      EXPECT_TRUE(test.contains("error")) << id << ": " << error.what();
    }
  }
}

TEST(ChatFormat, ChoosesATemplate) {
  const Json messages = Json::array({{{"role", "user"}, {"content", "x"}}});
  const Json tools = Json::array();
  ChatFormat::Conversation conversation;
  conversation.messages = &messages;
  const ChatFormat both =
      format_of({{"default", "D"}, {"tool_use", "T"}, {"rag", "R{{ bos_token }}"}}, {{"bos_token", "<s>"}});
  EXPECT_EQ(both.render(conversation), "D");
  conversation.chat_template = "rag";
  EXPECT_EQ(both.render(conversation), "R<s>");
  conversation.chat_template = "{{ messages[0].content }}{{ eos_token is defined }}";
  EXPECT_EQ(both.render(conversation), "xFalse");
  conversation.chat_template = {};
  conversation.tools = &tools;
  EXPECT_EQ(both.render(conversation), "T") << "an empty list of tools is one";
  EXPECT_EQ(format_of({{"default", "D"}}).render(conversation), "D");
  conversation.tools = nullptr;
  EXPECT_EQ(error_of(format_of({{"rag", "R"}, {"tool_use", "T"}}), conversation),
            "the model has several chat templates and none is the default; name one of rag, tool_use");
  EXPECT_EQ(error_of(ChatFormat(), conversation), "the model has no chat template");
  EXPECT_TRUE(ChatFormat().empty());
}

TEST(ChatFormat, ContentIsAStringOrParts) {
  const Json messages =
      Json::parse(R"([{"role":"user","content":"a"},{"role":"user","content":[{"type":"text","text":"b"},"c"]},
                                        {"role":"user","content":[{"type":"image"}]},{"role":"user","content":[]}])");
  const char* const parts =
      "{% for m in messages %}{% for p in m['content'] %}<{{ p.text or p.type }}>{% endfor %};{% endfor %}";
  const char* const text = "{% for m in messages %}{{ m.content }};{% endfor %}";
  const auto render = [&](const char* source, ContentFormat format) {
    ChatFormat::Conversation conversation;
    conversation.messages = &messages;
    conversation.content_format = format;
    return format_of({{"default", source}}).render(conversation);
  };
  EXPECT_EQ(render(parts, ContentFormat::kAuto), "<a>;<b><c>;<image>;;");
  EXPECT_EQ(render(text, ContentFormat::kAuto), "a;b\nc;[{'type': 'image'}];;");
  EXPECT_EQ(render(text, ContentFormat::kOpenAi),
            "[{'type': 'text', 'text': 'a'}];[{'type': 'text', 'text': 'b'}, {'type': 'text', 'text': 'c'}];"
            "[{'type': 'image'}];[];");
  EXPECT_EQ(render("{{ messages[1].content }}", ContentFormat::kString), "b\nc");
}

TEST(ChatFormat, SeesWhetherATemplateLoopsOverContent) {
  const std::pair<const char*, bool> cases[] = {
      {"{% for m in messages %}{% for c in m.content %}{% endfor %}{% endfor %}", true},
      {"{% for m in messages %}{% for c in m['content'] | list %}{% endfor %}{% endfor %}", true},
      {"{% set l = messages[1:] %}{% if l %}{% for m in l %}{% for c in m.content %}{% endfor %}{% endfor %}{% endif "
       "%}",
       true},
      {"{% set l = messages | list %}{% set k = l %}{% for m in k[::2] %}{% macro x() %}{% for c in m.content[1:] %}"
       "{% endfor %}{% endmacro %}{% endfor %}",
       true},
      {"{% for m in messages %}{{ m.content }}{% endfor %}", false},
      {"{% for m in tools %}{% for c in m.content %}{% endfor %}{% endfor %}", false},
      {"{% for m in messages %}{% for c in m.tool_calls %}{% endfor %}{% endfor %}", false},
      {"{% for m in messages %}{% for c in m[x] %}{% endfor %}{% endfor %}", false},
      {"{% for a, b in messages %}{% for c in b.content %}{% endfor %}{% endfor %}", false},
      {"{% filter upper %}{% endfilter %}", false},
  };
  for (const auto& [source, wanted] : cases) EXPECT_EQ(ChatTemplate(source).loops_over_content(), wanted) << source;
  const Json templates = read_text_data("chat_template_cases.json").at("templates");
  for (const auto& [model, source] : templates.items()) {
    EXPECT_EQ(ChatTemplate(source.get<std::string>()).loops_over_content(), model == "gemma3") << model;
  }
}

TEST(ChatFormat, ErrorsNameTheField) {
  const ChatFormat format = format_of({{"default", "{{ messages[-1].content | upper }}"}});
  Json messages = Json::array();
  ChatFormat::Conversation conversation;
  EXPECT_EQ(error_of(format, conversation), "messages: expected a list of at least one message");
  conversation.messages = &messages;
  EXPECT_EQ(error_of(format, conversation), "messages: expected a list of at least one message");
  messages.push_back(5);
  EXPECT_EQ(error_of(format, conversation), "messages: expected a list of objects");
  messages = Json::array({{{"role", "user"}, {"content", "x"}}});
  Json values = {{"documents", {1}}};
  conversation.values = &values;
  EXPECT_EQ(error_of(format, conversation), "documents: expected a list of objects");
  values["documents"] = nullptr;
  EXPECT_EQ(error_of(format, conversation), "[X]");
  conversation.continue_final_message = true;
  EXPECT_EQ(error_of(format, conversation), "continue_final_message and add_generation_prompt exclude each other");
  conversation.add_generation_prompt = false;
  EXPECT_EQ(error_of(format, conversation).substr(0, 89),
            "continue_final_message is set but the final message does not appear in the chat after app");
  messages[0]["content"] = Json::array({{{"type", "image"}}});
  EXPECT_EQ(error_of(format, conversation),
            "continue_final_message is set but the final message has no text to continue");
}

TEST(ChatFormat, ContinuesTheLastPart) {
  const Json messages =
      Json::parse(R"([{"role":"assistant","content":[{"type":"text","text":"b"},{"type":"text","text":"c "}]}])");
  ChatFormat::Conversation conversation;
  conversation.messages = &messages;
  conversation.add_generation_prompt = false;
  conversation.continue_final_message = true;
  const char* const source = "{% for m in messages %}{% for p in m.content %}<{{ p.text }}>{% endfor %}{% endfor %}";
  EXPECT_EQ(format_of({{"default", source}}).render(conversation), "<b><c ");
}

TEST(SpecialTokens, OfTheConfigurationOrTheMap) {
  using Tokens = std::vector<SpecialToken>;
  EXPECT_EQ(read_special_tokens("", ""), Tokens());
  EXPECT_EQ(read_special_tokens("[", "{}"), Tokens());
  EXPECT_EQ(read_special_tokens(R"({"bos_token":{"content":"<s>","lstrip":false},"eos_token":null,"pad_token":"P"})",
                                R"({"bos_token":"x","eos_token":"E","unk_token":{"content":"U"}})"),
            (Tokens{{"bos_token", "<s>"}, {"unk_token", "U"}, {"pad_token", "P"}}));
}

}  // namespace
}  // namespace quire
