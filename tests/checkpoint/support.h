#pragma once
// What the tests of checkpoints share.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "checkpoint/llama_tensors.h"

namespace quire {

class TemporaryFolder {
 public:
  TemporaryFolder()
      : path_(std::filesystem::temp_directory_path() /
              ("quire_test_" + std::to_string(::getpid()) + "_" + std::to_string(counter()++))) {
    std::filesystem::create_directories(path_);
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  std::string write(const std::string& name, std::string_view content) const {
    std::ofstream(path_ / name, std::ios::binary) << content;
    return (path_ / name).string();
  }
  std::string path() const { return path_.string(); }

 private:
  static int& counter() {
    static int value = 0;
    return value;
  }
  std::filesystem::path path_;
};

// What the action throws, or "accepted".
inline std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

// A file of these tensors in F32, all elements of one value.
inline std::string safetensors_file(const std::vector<ExpectedTensor>& tensors, float value) {
  nlohmann::json header = nlohmann::json::object();
  size_t offset = 0;
  for (const auto& [name, shape] : tensors) {
    size_t elements = 1;
    for (const int64_t size : shape) elements *= static_cast<size_t>(size);
    header[name] = {{"dtype", "F32"}, {"shape", shape}, {"data_offsets", {offset, offset + elements * 4}}};
    offset += elements * 4;
  }
  const std::string text = header.dump();
  const uint64_t size = text.size();
  std::string file(reinterpret_cast<const char*>(&size), sizeof size);
  file += text;
  for (size_t i = 0; i < offset / 4; ++i) file.append(reinterpret_cast<const char*>(&value), sizeof value);
  return file;
}

// A small GGUF file, version 3: keys, then tensors in F32 with all elements of one value.
class GgufWriter {
 public:
  GgufWriter& text(const std::string& key, const std::string& value) { return begin(key, 8).put_string(value); }
  GgufWriter& u32(const std::string& key, uint32_t value) { return begin(key, 4).put(value); }
  GgufWriter& f32(const std::string& key, float value) { return begin(key, 6).put(value); }
  GgufWriter& flag(const std::string& key, bool value) { return begin(key, 7).put(static_cast<uint8_t>(value)); }
  GgufWriter& texts(const std::string& key, const std::vector<std::string>& values) {
    begin(key, 9).put(uint32_t{8}).put(uint64_t{values.size()});
    for (const std::string& value : values) put_string(value);
    return *this;
  }
  std::string file(const std::vector<ExpectedTensor>& tensors = {}, float value = 0.0f) const {
    constexpr size_t kAlignment = 32;
    GgufWriter whole;
    whole.bytes_ = "GGUF";
    whole.put(uint32_t{3}).put(uint64_t{tensors.size()}).put(uint64_t{keys_});
    whole.bytes_ += bytes_;
    std::string data;
    for (const auto& [name, shape] : tensors) {
      whole.put_string(name).put(static_cast<uint32_t>(shape.size()));
      int64_t elements = 1;
      for (auto size = shape.rbegin(); size != shape.rend(); ++size) {
        whole.put(static_cast<uint64_t>(*size));
        elements *= *size;
      }
      whole.put(uint32_t{0}).put(uint64_t{data.size()});
      for (int64_t i = 0; i < elements; ++i) data.append(reinterpret_cast<const char*>(&value), sizeof value);
      data.resize((data.size() + kAlignment - 1) / kAlignment * kAlignment);
    }
    whole.bytes_.resize((whole.bytes_.size() + kAlignment - 1) / kAlignment * kAlignment);
    return whole.bytes_ + data;
  }

 private:
  template <class T>
  GgufWriter& put(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  GgufWriter& put_string(const std::string& value) {
    put(uint64_t{value.size()});
    bytes_ += value;
    return *this;
  }
  GgufWriter& begin(const std::string& key, uint32_t type) {
    ++keys_;
    return put_string(key).put(type);
  }

  std::string bytes_;
  uint64_t keys_ = 0;
};

}  // namespace quire
