#pragma once
// The GGUF container (versions 2 and 3, little-endian): typed metadata and a table of tensors. The file is untrusted:
// every read is checked against what is left, sizes are multiplied with overflow checks, nothing is allocated by a
// count that the file merely claims. Source: the GGUF specification in ggml's docs.
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "checkpoint/checkpoint.h"

namespace quire {

enum class GgufType : uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64 };

struct GgufTensor {
  TensorInfo info;  // name as in the file, shape outermost first
  const std::byte* data;
};

class GgufFile {
 public:
  // bytes outlive this object. name: the file's, for messages. Throws Error(kInvalidArgument).
  GgufFile(std::span<const std::byte> bytes, std::string name);

  bool has(std::string_view key) const { return values_.find(key) != values_.end(); }
  // nullopt if the key is absent; Error naming the key and its type if it is of another type.
  std::optional<int64_t> integer(std::string_view key) const;  // any integer type whose value fits
  std::optional<double> number(std::string_view key) const;    // f32, f64 or an integer
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::string_view> string(std::string_view key) const;
  std::vector<std::string> strings(std::string_view key) const;  // empty if absent
  std::vector<float> floats(std::string_view key) const;         // array of f32
  std::vector<int32_t> integers(std::string_view key) const;     // array of i32 or u32

  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  Error error(const std::string& what) const;

 private:
  struct Value {
    GgufType type;
    GgufType element = GgufType::kU8;  // of an array
    uint64_t count = 1;
    const std::byte* data = nullptr;
    size_t size = 0;
  };
  class Cursor;

  Value read_value(Cursor& cursor, std::string_view key);
  void read_tensors(Cursor& cursor, uint64_t count);
  const Value* find(std::string_view key) const;
  const Value* find_array(std::string_view key, std::initializer_list<GgufType> elements) const;
  Error wrong_type(std::string_view key, const Value& value, std::string_view wanted) const;

  std::span<const std::byte> bytes_;
  std::string name_;
  std::map<std::string, Value, std::less<>> values_;
  std::vector<GgufTensor> tensors_;
};

}  // namespace quire
