#pragma once
// The part that `quire chat` and `quire complete` share: options, choosing the model, the loop over lines, statistics.
#include <functional>
#include <memory>
#include <string>

#include "cli/command.h"
#include "cli/text_model.h"

namespace quire {

struct TalkOptions {
  EngineConfig engine;
  SamplingChoice sampling;
  std::string url, model_name, api_key = "EMPTY", quick;
  bool stats = false;
  bool has_quick = false;  // -q was given, perhaps with an empty text
};

void add_talk_options(OptionTable& table, TalkOptions& options);

// After parsing: connects or loads, and prints the model's name. From here on SIGINT ends the process with 0.
std::unique_ptr<TextModel> open_text_model(const ParsedOptions& parsed, TalkOptions& options);

// Answers the -q text, or every line of stdin until its end. ask gets a line and shows the answer; an Error of one line
// is printed and does not end an interactive session.
int run_talk(const TalkOptions& options, std::string_view invitation,
             const std::function<Answer(const std::string& line)>& ask);

std::string stats_text(const Answer& answer);

}  // namespace quire
