// quire complete: continues each text by itself.
#include "cli/command.h"
#include "cli/talk.h"

namespace quire {

int complete_command(Arguments args) {
  TalkOptions options;
  OptionTable table("quire complete",
                    "Continue a text with a model, loaded here or behind a server (--url). Ctrl-D ends.");
  add_talk_options(table, options);
  ParsedOptions parsed;
  if (!parse_options(table, args, LogLevel::kWarning, parsed)) return 0;

  const std::unique_ptr<TextModel> model = open_text_model(parsed, options);
  return run_talk(options, "Type the beginning of a text; Ctrl-D ends.",
                  [&](const std::string& line) { return model->complete(line, options.sampling, print); });
}

}  // namespace quire
