#include "bench/dataset_files.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/quote.h"
#include "checkpoint/mapped_file.h"

namespace quire {
namespace {

namespace od = simdjson::ondemand;

constexpr size_t kMaxFile = (size_t{4} << 30) - 64;  // what the JSON reader takes
constexpr int32_t kMaxTokens = 1 << 24;

Error broken(const std::string& path, const std::string& what) {
  return invalid_argument(fmt::format("--dataset-path {}: {}", path, what), "dataset-path");
}

std::string_view text_of(const MappedFile& file) {
  if (file.bytes().size() > kMaxFile)
    throw broken(file.path(), fmt::format("has {} bytes, the limit is {}", file.bytes().size(), kMaxFile));
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

// Calls visit(line, number) with each line, its end taken away.
template <class Visit>
void for_each_line(std::string_view text, Visit&& visit) {
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    visit(line, number);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

std::vector<std::string_view> split(std::string_view line) {
  std::vector<std::string_view> out;
  for (;;) {
    const size_t comma = line.find(',');
    std::string_view cell = line.substr(0, comma);
    if (cell.size() >= 2 && cell.front() == '"' && cell.back() == '"') cell = cell.substr(1, cell.size() - 2);
    out.push_back(cell);
    if (comma == std::string_view::npos) return out;
    line.remove_prefix(comma + 1);
  }
}

}  // namespace

void check_readable(const std::string& path) {
  try {
    const MappedFile file(path);
  } catch (const Error& error) {
    throw invalid_argument(fmt::format("--dataset-path {}", error.what()), "dataset-path");
  }
}

std::vector<Conversation> read_conversations(const std::string& path) {
  const MappedFile file(path);
  const simdjson::padded_string padded(text_of(file));
  std::vector<Conversation> out;
  try {
    od::parser parser;
    od::document document = parser.iterate(padded);
    for (od::object entry : document.get_array()) {
      od::array turns;
      if (entry["conversations"].get_array().get(turns) != simdjson::SUCCESS) continue;
      Conversation conversation;
      int count = 0;
      for (od::object turn : turns) {
        if (count < 2) {
          const std::string_view value = turn["value"].get_string();
          (count == 0 ? conversation.prompt : conversation.answer) = value;
        }
        ++count;
      }
      if (count >= 2) out.push_back(std::move(conversation));
    }
  } catch (const simdjson::simdjson_error& error) {
    throw broken(path, fmt::format("is no list of conversations ({})", error.what()));
  }
  return out;
}

std::vector<CustomPrompt> read_custom_prompts(const std::string& path) {
  const MappedFile file(path);
  std::vector<CustomPrompt> out;
  for_each_line(text_of(file), [&](std::string_view line, size_t number) {
    if (line.find_first_not_of(" \t") == std::string_view::npos) return;
    const auto refuse = [&](const char* why) { return broken(path, fmt::format("line {}: {}", number, why)); };
    const auto json = nlohmann::json::parse(line, nullptr, false);
    if (!json.is_object()) throw refuse("is no JSON object");
    const auto prompt = json.find("prompt");
    if (prompt == json.end() || !prompt->is_string()) throw refuse("has no text `prompt`");
    CustomPrompt row;
    row.text = prompt->get<std::string>();
    row.line = number;
    if (const auto tokens = json.find("output_tokens"); tokens != json.end() && !tokens->is_null()) {
      if (!tokens->is_number_integer() || *tokens < 1 || *tokens > kMaxTokens)
        throw refuse("output_tokens must be a whole number from 1 to 16777216");
      row.output_tokens = tokens->get<int32_t>();
    }
    out.push_back(std::move(row));
  });
  return out;
}

std::vector<BurstRow> read_burst_rows(const std::string& path) {
  const MappedFile file(path);
  std::vector<BurstRow> out;
  size_t model = 0, request = 0, response = 0, columns = 0;
  for_each_line(text_of(file), [&](std::string_view line, size_t number) {
    const std::vector<std::string_view> cells = split(line);
    if (number == 1) {
      columns = cells.size();
      const auto column = [&](std::string_view name) {
        const auto found = std::find(cells.begin(), cells.end(), name);
        if (found == cells.end()) throw broken(path, fmt::format("has no column {}", quote(name)));
        return static_cast<size_t>(found - cells.begin());
      };
      model = column("Model");
      request = column("Request tokens");
      response = column("Response tokens");
      return;
    }
    if (line.empty()) return;
    const auto count = [&](size_t column) {
      double value = 0;
      const std::string_view cell = cells[column];
      const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
      if (error != std::errc{} || end != cell.data() + cell.size() || !(value >= 0 && value <= kMaxTokens))
        throw broken(path, fmt::format("line {}: {} is no number of tokens", number, quote(cell)));
      return static_cast<int32_t>(value);
    };
    if (cells.size() != columns)
      throw broken(path, fmt::format("line {}: has {} columns, the first line {}", number, cells.size(), columns));
    const BurstRow row{count(request), count(response)};
    if (cells[model] == "GPT-4" && row.response_tokens > 0) out.push_back(row);
  });
  return out;
}

}  // namespace quire
