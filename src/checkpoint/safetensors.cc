#include "checkpoint/safetensors.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace quire {
namespace {

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the reference reader's limit

std::optional<DType> safetensors_dtype(std::string_view name) {
  if (name == "F32") return DType::kF32;
  if (name == "F16") return DType::kF16;
  if (name == "BF16") return DType::kBF16;
  if (name == "F8_E4M3") return DType::kF8E4M3;
  if (name == "F8_E5M2") return DType::kF8E5M2;
  if (name == "I8" || name == "U8" || name == "BOOL") return DType::kI8;
  if (name == "I32" || name == "U32") return DType::kI32;
  if (name == "I64" || name == "U64" || name == "F64")
    return DType::kI64;  // as bytes only: no weight is of these types
  return std::nullopt;
}

struct Placed {
  SafetensorsEntry entry;
  uint64_t begin, end;
};

Placed read_entry(std::string_view key, simdjson::dom::object fields, const std::string& name) {
  const auto refuse = [&](std::string_view what) {
    return invalid_argument(fmt::format("{}: tensor {}: {}", name, key, what), "model");
  };
  Placed placed{{{std::string(key), DType::kF32, {}}, nullptr}, 0, 0};
  std::string_view dtype;
  if (fields["dtype"].get_string().get(dtype) != simdjson::SUCCESS) throw refuse("dtype is missing");
  const auto known = safetensors_dtype(dtype);
  if (!known) throw refuse(fmt::format("dtype {} is not supported", dtype));
  placed.entry.info.dtype = *known;

  simdjson::dom::array shape;
  if (fields["shape"].get_array().get(shape) != simdjson::SUCCESS) throw refuse("shape is missing");
  uint64_t elements = 1;
  for (const simdjson::dom::element element : shape) {
    uint64_t size = 0;
    if (element.get_uint64().get(size) != simdjson::SUCCESS) throw refuse("shape holds something that is no size");
    if (__builtin_mul_overflow(elements, size, &elements) || size > static_cast<uint64_t>(INT64_MAX))
      throw refuse("shape overflows");
    placed.entry.info.shape.push_back(static_cast<int64_t>(size));
  }
  uint64_t bytes;
  if (__builtin_mul_overflow(elements, static_cast<uint64_t>(block_bytes(*known)), &bytes))
    throw refuse("shape overflows");

  simdjson::dom::array offsets;
  if (fields["data_offsets"].get_array().get(offsets) != simdjson::SUCCESS || offsets.size() != 2 ||
      offsets.at(0).get_uint64().get(placed.begin) != simdjson::SUCCESS ||
      offsets.at(1).get_uint64().get(placed.end) != simdjson::SUCCESS) {
    throw refuse("data_offsets is no pair of offsets");
  }
  if (placed.end < placed.begin || placed.end - placed.begin != bytes) {
    throw refuse(
        fmt::format("data_offsets [{}, {}] don't hold the {} bytes of its shape", placed.begin, placed.end, bytes));
  }
  return placed;
}

}  // namespace

std::vector<SafetensorsEntry> read_safetensors(std::span<const std::byte> bytes, const std::string& name) {
  const auto refuse = [&](std::string_view what) {
    return invalid_argument(fmt::format("{}: {}", name, what), "model");
  };
  uint64_t header_bytes;
  if (bytes.size() < sizeof header_bytes) throw refuse("too short for a safetensors file");
  std::memcpy(&header_bytes, bytes.data(), sizeof header_bytes);
  if (header_bytes > kMaxHeaderBytes)
    throw refuse(fmt::format("header of {} bytes; at most {} are read", header_bytes, kMaxHeaderBytes));
  if (header_bytes > bytes.size() - sizeof header_bytes) {
    throw refuse(fmt::format("header of {} bytes passes the end of the file", header_bytes));
  }

  simdjson::dom::parser parser;
  simdjson::dom::object header;
  const simdjson::padded_string json(reinterpret_cast<const char*>(bytes.data()) + sizeof header_bytes, header_bytes);
  simdjson::dom::element root;
  if (const auto error = parser.parse(json).get(root); error != simdjson::SUCCESS) {
    throw refuse(fmt::format("header is not JSON: {}", simdjson::error_message(error)));
  }
  if (root.get_object().get(header) != simdjson::SUCCESS) throw refuse("header is not a JSON object");

  std::vector<Placed> tensors;
  std::set<std::string_view> names;
  for (const simdjson::dom::key_value_pair field : header) {
    simdjson::dom::object fields;
    if (field.value.get_object().get(fields) != simdjson::SUCCESS)
      throw refuse(fmt::format("{} is not an object", field.key));
    if (field.key == "__metadata__") {
      for (const simdjson::dom::key_value_pair entry : fields) {
        if (!entry.value.is_string()) throw refuse(fmt::format("__metadata__.{} is not a string", entry.key));
      }
      continue;
    }
    if (!names.insert(field.key).second) throw refuse(fmt::format("tensor {} is there twice", field.key));
    tensors.push_back(read_entry(field.key, fields, name));
  }

  // In order of their places the tensors must follow each other without a gap, and fill the file.
  std::stable_sort(tensors.begin(), tensors.end(), [](const Placed& a, const Placed& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  const std::byte* data = bytes.data() + sizeof header_bytes + header_bytes;
  uint64_t expected = 0;
  std::vector<SafetensorsEntry> entries;
  for (Placed& placed : tensors) {
    if (placed.begin != expected) {
      throw refuse(fmt::format("tensor {} begins at {}, its neighbour ends at {}", placed.entry.info.name, placed.begin,
                               expected));
    }
    expected = placed.end;
    placed.entry.data = data + placed.begin;
    entries.push_back(std::move(placed.entry));
  }
  const uint64_t available = bytes.size() - sizeof header_bytes - header_bytes;
  if (expected != available)
    throw refuse(fmt::format("tensors take {} bytes, the file has {}; is it cut short?", expected, available));
  return entries;
}

}  // namespace quire
