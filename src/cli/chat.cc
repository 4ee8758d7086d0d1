// quire chat: a conversation, whose history is sent with every message.
#include "base/error.h"
#include "cli/command.h"
#include "cli/talk.h"

namespace quire {

int chat_command(Arguments args) {
  TalkOptions options;
  std::string system_prompt;
  OptionTable table("quire chat", "Talk with a model, loaded here or behind a server (--url). Ctrl-D ends.");
  add_talk_options(table, options);
  table.group("Talking");
  table.add("system-prompt", system_prompt, "first message, in the role of the system").value_name("TEXT");
  ParsedOptions parsed;
  if (!parse_options(table, args, LogLevel::kWarning, parsed)) return 0;

  const std::unique_ptr<TextModel> model = open_text_model(parsed, options);
  std::vector<ChatMessage> messages;
  if (!system_prompt.empty()) messages.push_back({"system", system_prompt});
  return run_talk(options, "Type a message; Ctrl-D ends.", [&](const std::string& line) {
    messages.push_back({"user", line});
    try {
      Answer answer = model->chat(messages, options.sampling, print);
      messages.push_back({"assistant", answer.text});
      return answer;
    } catch (const Error&) {
      messages.pop_back();  // so that the next message does not fail with it
      throw;
    }
  });
}

}  // namespace quire
