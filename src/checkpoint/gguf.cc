#include "checkpoint/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/quote.h"

namespace quire {
namespace {

constexpr std::array<std::string_view, 13> kTypeNames = {"uint8",  "int8",    "uint16", "int16",  "uint32",
                                                         "int32",  "float32", "bool",   "string", "array",
                                                         "uint64", "int64",   "float64"};
constexpr std::array<size_t, 13> kTypeSizes = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};  // 0: not of fixed size
constexpr size_t kMaxKeyBytes = 65535;
constexpr size_t kMaxTensorNameBytes = 255;  // ggml's own limit is 64
constexpr uint32_t kMaxDims = 4;

// A name of the file for a message: cut and escaped where it is not plain text.
std::string shown(std::string_view name) {
  constexpr size_t kMaxShown = 80;
  const bool plain = std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c <= '~'; });
  if (plain && !name.empty() && name.size() <= kMaxShown) return std::string(name);
  return quote(name, kMaxShown);
}

std::string_view type_name(GgufType type) { return kTypeNames[static_cast<size_t>(type)]; }
size_t type_size(GgufType type) { return kTypeSizes[static_cast<size_t>(type)]; }

std::optional<DType> tensor_type(uint32_t id) {
  switch (id) {
    case 0:
      return DType::kF32;
    case 1:
      return DType::kF16;
    case 2:
      return DType::kQ4_0;
    case 3:
      return DType::kQ4_1;
    case 6:
      return DType::kQ5_0;
    case 7:
      return DType::kQ5_1;
    case 8:
      return DType::kQ8_0;
    case 12:
      return DType::kQ4_K;
    case 13:
      return DType::kQ5_K;
    case 14:
      return DType::kQ6_K;
    case 24:
      return DType::kI8;
    case 26:
      return DType::kI32;
    case 27:
      return DType::kI64;
    case 30:
      return DType::kBF16;
    default:
      return std::nullopt;
  }
}

template <class T>
T load(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

// The value of one integer element; nullopt where it doesn't fit int64.
std::optional<int64_t> load_integer(GgufType type, const std::byte* p) {
  switch (type) {
    case GgufType::kU8:
      return load<uint8_t>(p);
    case GgufType::kI8:
      return load<int8_t>(p);
    case GgufType::kU16:
      return load<uint16_t>(p);
    case GgufType::kI16:
      return load<int16_t>(p);
    case GgufType::kU32:
      return load<uint32_t>(p);
    case GgufType::kI32:
      return load<int32_t>(p);
    case GgufType::kI64:
      return load<int64_t>(p);
    case GgufType::kU64: {
      const auto value = load<uint64_t>(p);
      if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
      return static_cast<int64_t>(value);
    }
    default:
      return std::nullopt;
  }
}

}  // namespace

class GgufFile::Cursor {
 public:
  explicit Cursor(const GgufFile& file) : file_(file), p_(file.bytes_.data()), left_(file.bytes_.size()) {}

  const std::byte* take(uint64_t n, std::string_view what) {
    if (n > left_)
      throw file_.error(
          fmt::format("{} of {} bytes at offset {} passes the end of the file", shown(what), n, offset()));
    const std::byte* p = p_;
    p_ += n;
    left_ -= n;
    return p;
  }
  template <class T>
  T number(std::string_view what) {
    return load<T>(take(sizeof(T), what));
  }
  std::string_view string(std::string_view what) {
    const auto size = number<uint64_t>(what);
    return {reinterpret_cast<const char*>(take(size, what)), size};
  }
  GgufType type(std::string_view key) {
    const auto id = number<uint32_t>("value type");
    if (id >= kTypeNames.size())
      throw file_.error(fmt::format("key {} has type {}; types go up to 12", shown(key), id));
    return static_cast<GgufType>(id);
  }
  size_t offset() const { return file_.bytes_.size() - left_; }
  uint64_t left() const { return left_; }

 private:
  const GgufFile& file_;
  const std::byte* p_;
  uint64_t left_;
};

Error GgufFile::error(const std::string& what) const {
  return invalid_argument(fmt::format("{}: {}", name_, what), "model");
}

GgufFile::GgufFile(std::span<const std::byte> bytes, std::string name) : bytes_(bytes), name_(std::move(name)) {
  Cursor cursor(*this);
  if (bytes.size() < 4 || std::memcmp(cursor.take(4, "magic"), "GGUF", 4) != 0)
    throw error("not a GGUF file: it does not start with 'GGUF'");
  const auto version = cursor.number<uint32_t>("version");
  if ((version & 0xffff) == 0) throw error("a big-endian GGUF file; only little-endian ones are read");
  if (version != 2 && version != 3) throw error(fmt::format("GGUF version {}; versions 2 and 3 are read", version));
  const auto tensors = cursor.number<uint64_t>("tensor count"), keys = cursor.number<uint64_t>("key count");
  for (uint64_t i = 0; i < keys; ++i) {
    const std::string_view key = cursor.string("key");
    if (key.size() > kMaxKeyBytes)
      throw error(fmt::format("a key of {} bytes; at most {} are allowed", key.size(), kMaxKeyBytes));
    const Value value = read_value(cursor, key);
    if (!values_.emplace(std::string(key), value).second) throw error(fmt::format("key {} is there twice", shown(key)));
  }
  read_tensors(cursor, tensors);
}

GgufFile::Value GgufFile::read_value(Cursor& cursor, std::string_view key) {
  Value value{cursor.type(key)};
  const auto pass_strings = [&](uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) cursor.string(key);
  };
  if (value.type == GgufType::kArray) {
    value.element = cursor.type(key);
    value.count = cursor.number<uint64_t>("array length");
    if (value.element == GgufType::kArray)
      throw error(fmt::format("key {}: arrays of arrays are not read", shown(key)));
  } else {
    value.element = value.type;
  }
  const size_t begin = cursor.offset();
  value.data = bytes_.data() + begin;
  if (value.element == GgufType::kString) {
    pass_strings(value.count);
  } else {
    uint64_t size;
    if (__builtin_mul_overflow(value.count, type_size(value.element), &size))
      size = std::numeric_limits<uint64_t>::max();
    cursor.take(size, key);
  }
  value.size = cursor.offset() - begin;
  return value;
}

void GgufFile::read_tensors(Cursor& cursor, uint64_t count) {
  int64_t alignment = 32;
  if (const Value* value = find("general.alignment")) {
    if (value->type != GgufType::kU32) throw wrong_type("general.alignment", *value, "uint32");
    alignment = *integer("general.alignment");
    constexpr int64_t kMaxAlignment = int64_t{1} << 20;
    if (alignment < 1 || alignment > kMaxAlignment || (alignment & (alignment - 1)) != 0) {
      throw error(fmt::format("general.alignment is {}; a power of two up to {} is needed", alignment, kMaxAlignment));
    }
  }
  struct Place {
    uint64_t offset, size;
  };
  std::vector<Place> places;
  std::set<std::string_view> names;
  for (uint64_t i = 0; i < count; ++i) {
    const std::string_view name_bytes = cursor.string("tensor name");
    if (name_bytes.size() > kMaxTensorNameBytes) {
      throw error(
          fmt::format("a tensor name of {} bytes; at most {} are read", name_bytes.size(), kMaxTensorNameBytes));
    }
    const std::string name = shown(name_bytes);
    if (!names.insert(name_bytes).second) throw error(fmt::format("tensor {} is there twice", name));
    const auto dims = cursor.number<uint32_t>("tensor dimensions");
    if (dims < 1 || dims > kMaxDims)
      throw error(fmt::format("tensor {} has {} dimensions; 1 to {} are read", name, dims, kMaxDims));
    GgufTensor tensor{{std::string(name_bytes), DType::kF32, {}}, nullptr};
    int64_t elements = 1;
    for (uint32_t d = 0; d < dims; ++d) {
      const auto size = static_cast<int64_t>(cursor.number<uint64_t>("tensor shape"));
      if (size < 1 || __builtin_mul_overflow(elements, size, &elements)) {
        throw error(fmt::format("tensor {} has a dimension of {}", name, static_cast<uint64_t>(size)));
      }
      tensor.info.shape.insert(tensor.info.shape.begin(), size);  // the file lists the innermost first
    }
    const auto type_id = cursor.number<uint32_t>("tensor type");
    const std::optional<DType> dtype = tensor_type(type_id);
    if (!dtype) {
      throw error(
          fmt::format("tensor {} has type {}; F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K and Q6_K are "
                      "supported",
                      name, type_id));
    }
    tensor.info.dtype = *dtype;
    if (tensor.info.shape.back() % block_elements(*dtype) != 0) {
      throw error(fmt::format("tensor {} has rows of {} elements, no whole number of {} blocks of {}", name,
                              tensor.info.shape.back(), dtype_name(*dtype), block_elements(*dtype)));
    }
    int64_t size;
    if (__builtin_mul_overflow(elements / block_elements(*dtype), block_bytes(*dtype), &size)) {
      throw error(fmt::format("tensor {} is too large", name));
    }
    const auto offset = cursor.number<uint64_t>("tensor offset");
    if (offset % static_cast<uint64_t>(alignment) != 0) {
      throw error(fmt::format("tensor {} lies at offset {}, no multiple of the alignment {}", name, offset, alignment));
    }
    places.push_back({offset, static_cast<uint64_t>(size)});
    tensors_.push_back(std::move(tensor));
  }

  const auto align = static_cast<uint64_t>(alignment);
  const uint64_t data_begin = (cursor.offset() + align - 1) / align * align;
  const uint64_t available = data_begin < bytes_.size() ? bytes_.size() - data_begin : 0;
  std::vector<size_t> order(places.size());
  for (size_t i = 0; i < places.size(); ++i) {
    order[i] = i;
    if (places[i].size > available || places[i].offset > available - places[i].size) {
      throw error(
          fmt::format("tensor {} ({} bytes at offset {}) passes the end of the file: {} bytes of data are there; is "
                      "the file cut short?",
                      shown(tensors_[i].info.name), places[i].size, places[i].offset, available));
    }
    tensors_[i].data = bytes_.data() + data_begin + places[i].offset;
  }
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return places[a].offset < places[b].offset; });
  for (size_t i = 1; i < order.size(); ++i) {
    const Place& before = places[order[i - 1]];
    if (places[order[i]].offset < before.offset + before.size) {
      throw error(fmt::format("tensors {} and {} overlap", shown(tensors_[order[i - 1]].info.name),
                              shown(tensors_[order[i]].info.name)));
    }
  }
}

const GgufFile::Value* GgufFile::find(std::string_view key) const {
  const auto it = values_.find(key);
  return it == values_.end() ? nullptr : &it->second;
}

Error GgufFile::wrong_type(std::string_view key, const Value& value, std::string_view wanted) const {
  const bool array = value.type == GgufType::kArray;
  return error(fmt::format("key {} is {}{}; {} is needed", shown(key), array ? "an array of " : "",
                           type_name(value.element), wanted));
}

const GgufFile::Value* GgufFile::find_array(std::string_view key, std::initializer_list<GgufType> elements) const {
  const Value* value = find(key);
  if (value == nullptr) return nullptr;
  const bool fits =
      value->type == GgufType::kArray && std::find(elements.begin(), elements.end(), value->element) != elements.end();
  if (!fits) throw wrong_type(key, *value, fmt::format("an array of {}", type_name(*elements.begin())));
  return value;
}

std::optional<int64_t> GgufFile::integer(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  const std::optional<int64_t> result = load_integer(value->type, value->data);
  if (!result) throw wrong_type(key, *value, "an integer");
  return result;
}

std::optional<double> GgufFile::number(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->type == GgufType::kF32) return static_cast<double>(load<float>(value->data));
  if (value->type == GgufType::kF64) return load<double>(value->data);
  return static_cast<double>(*integer(key));
}

std::optional<bool> GgufFile::boolean(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->type != GgufType::kBool) throw wrong_type(key, *value, "bool");
  return load<uint8_t>(value->data) != 0;
}

std::optional<std::string_view> GgufFile::string(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->type != GgufType::kString) throw wrong_type(key, *value, "string");
  return std::string_view(reinterpret_cast<const char*>(value->data) + 8, value->size - 8);
}

std::vector<std::string> GgufFile::strings(std::string_view key) const {
  std::vector<std::string> result;
  const Value* value = find_array(key, {GgufType::kString});
  if (value == nullptr) return result;
  result.reserve(value->count);  // each took at least 8 bytes of the file
  const std::byte* p = value->data;
  for (uint64_t i = 0; i < value->count; ++i) {
    const auto size = load<uint64_t>(p);
    result.emplace_back(reinterpret_cast<const char*>(p) + 8, size);
    p += 8 + size;
  }
  return result;
}

std::vector<float> GgufFile::floats(std::string_view key) const {
  const Value* value = find_array(key, {GgufType::kF32});
  std::vector<float> result(value == nullptr ? 0 : value->count);
  if (!result.empty()) std::memcpy(result.data(), value->data, value->size);
  return result;
}

std::vector<int32_t> GgufFile::integers(std::string_view key) const {
  const Value* value = find_array(key, {GgufType::kI32, GgufType::kU32});
  std::vector<int32_t> result(value == nullptr ? 0 : value->count);
  if (!result.empty()) std::memcpy(result.data(), value->data, value->size);
  return result;
}

}  // namespace quire
