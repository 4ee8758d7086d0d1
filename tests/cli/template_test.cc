#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "cli/process.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

class CliTemplate : public testing::Test {
 protected:
  CliTemplate() : folder_(fs::temp_directory_path() / ("quire-template-" + std::to_string(getpid()))) {
    fs::create_directories(folder_ / "additional_chat_templates");
    write("tokenizer_config.json", R"({"bos_token": "<s>", "chat_template": "unused beside chat_template.jinja"})");
    write("chat_template.jinja",
          "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
          "{% if tools %}{{ tools | tojson }}{% endif %}{% if documents %}{{ documents[0].text }}{% endif %}{{ mood }}"
          "{% if add_generation_prompt %}[assistant]{% endif %}");
    write("additional_chat_templates/short.jinja", "{{ messages | length }}");
  }
  ~CliTemplate() override { fs::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
    return folder_ / name;
  }
  Outcome run(std::vector<std::string> more, const std::string& input = kMessages) const {
    std::vector<std::string> args = {"template", "--model", folder_.string()};
    args.insert(args.end(), more.begin(), more.end());
    return run_quire(args, input);
  }
  std::string out(const std::vector<std::string>& more, const std::string& input = kMessages) const {
    const Outcome outcome = run(more, input);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.err, "");
    return outcome.out;
  }

  static constexpr const char* kMessages = R"([{"role": "user", "content": "hi"}])";
  const fs::path folder_;
};

TEST_F(CliTemplate, PrintsThePrompt) {
  EXPECT_EQ(out({}), "<s>[user]hi[assistant]");
  EXPECT_EQ(out({"--no-add-generation-prompt"}), "<s>[user]hi");
  EXPECT_EQ(out({"--no-add-generation-prompt", "--continue-final-message"},
                R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "so "}])"),
            "<s>[user]a[assistant]so ");
  EXPECT_EQ(
      out({"--messages", write("m.json", R"([{"role": "user", "content": [{"type": "text", "text": "é"}, "b"]}])")}),
      "<s>[user]é\nb[assistant]");
  EXPECT_EQ(out({"--tools", write("t.json", R"([{"x": 1.0}])"), "--documents", write("d.json", R"([{"text": "D"}])"),
                 "--chat-template-kwargs", R"({"mood": "M"})"}),
            R"(<s>[user]hi[{"x": 1.0}]DM[assistant])");
  EXPECT_EQ(out({}, R"({"messages": [{"role": "user", "content": "q"}], "tools": [1], "documents": [{"text": "E"}],
                        "chat_template_kwargs": {"mood": "N"}})"),
            "<s>[user]q[1]EN[assistant]");
}

TEST_F(CliTemplate, TakesOtherTemplates) {
  EXPECT_EQ(out({"--chat-template", "short"}), "1");
  EXPECT_EQ(out({"--chat-template", "{{ messages[0].content }}!"}), "hi!");
  EXPECT_EQ(out({"--chat-template", write("other.jinja", "O{{ bos_token }}")}), "O<s>");
  EXPECT_EQ(out({"--chat-template", "{{ messages[0].content }}", "--chat-template-content-format", "openai"}),
            "[{'type': 'text', 'text': 'hi'}]");
}

TEST_F(CliTemplate, ErrorsAreOneLine) {
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{"--chat-template", "{% if %}"}, "--chat-template: chat template, line 1: "},
      {{"--chat-template", "\n{{ messages.x.y }}"}, "chat template, line 2: 'list object' has no attribute 'x'"},
      {{"--chat-template", "{{ raise_exception('no ' ~ messages[0].role) }}"}, "error: no user"},
      {{"--chat-template", "/nonexistent"}, "--chat-template: can't open /nonexistent"},
      {{"--messages", "/nonexistent"}, "can't open /nonexistent"},
      {{"--tools", write("bad.json", "{")}, "--tools " + (folder_ / "bad.json").string() + ": not JSON"},
      {{"--tools", write("object.json", "{}")}, "--tools: expected a list"},
      {{"--chat-template-kwargs", "[]"}, "--chat-template-kwargs: expected a JSON object"},
      {{"--continue-final-message"}, "exclude each other"},
      {{"--chat-template-content-format", "xml"}, "must be one of auto, string, openai"},
  };
  for (const auto& [args, message] : cases) {
    const Outcome outcome = run(args);
    EXPECT_EQ(outcome.code, 2) << message;
    EXPECT_EQ(outcome.out, "");
    EXPECT_NE(outcome.err.find(message), std::string::npos) << outcome.err;
    EXPECT_EQ(outcome.err.find('\n'), outcome.err.size() - 1) << outcome.err;
  }
  for (const char* input : {"", "[", "5", "[5]", "[]", "{}", "1, \"b\": 2", "[{\"role\": \"\xff\"}]"}) {
    const Outcome outcome = run({}, input);
    EXPECT_EQ(outcome.code, 2) << input << outcome.out;
  }
  EXPECT_EQ(run({}, std::string(100000, '[')).code, 2);
  fs::remove(folder_ / "chat_template.jinja");
  write("tokenizer_config.json", "{}");
  fs::remove_all(folder_ / "additional_chat_templates");
  EXPECT_NE(run({}).err.find("the model has no chat template"), std::string::npos);
}

TEST_F(CliTemplate, ABadTemplateOfTheModelIsLeftOut) {
  write("chat_template.jinja", "{% if %}");
  const Outcome outcome = run({"--chat-template", "short"});
  EXPECT_EQ(outcome.out, "1");
  const Outcome bad = run({});
  EXPECT_EQ(bad.code, 2);
  EXPECT_NE(bad.err.find("the model's chat template 'default' can't be used: chat template, line 1"), std::string::npos)
      << bad.err;
}

}  // namespace
}  // namespace quire
