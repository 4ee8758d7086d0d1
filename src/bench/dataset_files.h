#pragma once
// The files of datasets as they are found: ShareGPT's conversations, lines of JSON, BurstGPT's table. All throw
// Error(kInvalidArgument) naming the file, and the line where there are lines, if it is not what it must be or is
// larger than 4 GiB.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace quire {

struct Conversation {
  std::string prompt, answer;  // its first two turns
};
// JSON: a list of objects with a list `conversations` of objects with a `value`. Those with fewer than two turns are
// left out.
std::vector<Conversation> read_conversations(const std::string& path);

struct CustomPrompt {
  std::string text;
  std::optional<int32_t> output_tokens;
  size_t line = 0;
};
// One JSON object in each line, with `prompt` and perhaps `output_tokens`. Empty lines are left out.
std::vector<CustomPrompt> read_custom_prompts(const std::string& path);

struct BurstRow {
  int32_t request_tokens = 0, response_tokens = 0;
};
// CSV with the columns Model, Request tokens and Response tokens; rows of GPT-4 with an answer.
std::vector<BurstRow> read_burst_rows(const std::string& path);

void check_readable(const std::string& path);

}  // namespace quire
