#pragma once
// Reads the golden files of tools/make_template_golden.py.
#include <ctime>
#include <fstream>
#include <stdexcept>
#include <string>

#include <nlohmann/json.hpp>

namespace quire {

inline nlohmann::ordered_json read_json(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path);
  return nlohmann::ordered_json::parse(file);
}

inline nlohmann::ordered_json read_text_data(const std::string& name) {
  return read_json(std::string(QUIRE_TEST_DATA) + "/text/" + name);
}

// "2026-03-04T05:06:07" as local time.
inline std::tm clock_of(const std::string& text) {
  std::tm time{};
  if (strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &time) == nullptr) throw std::runtime_error("bad clock " + text);
  return time;
}

}  // namespace quire
