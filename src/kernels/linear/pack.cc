#include "kernels/linear/pack.h"

#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"

namespace quire {
namespace {

constexpr uint32_t kLow = 0x0f0f0f0f;

uint32_t load_word(const uint8_t* p) {
  uint32_t word;
  std::memcpy(&word, p, sizeof word);
  return word;
}

void store_word(std::byte* p, uint32_t word) { std::memcpy(p, &word, sizeof word); }

void store_f16(std::byte* p, int64_t row, uint16_t bits) { std::memcpy(p + 2 * row, &bits, sizeof bits); }

// The codes of a group of one row as kU4 and kU5 have them; word(i): columns 4i to 4i + 3, one a byte. fifth: null for
// 4-bit codes.
template <class Word>
void store_codes(Word word, int64_t row, std::byte* codes, std::byte* fifth) {
  for (int p = 0; p < 4; ++p) {
    const uint32_t pair[2] = {word(2 * p), word(2 * p + 1)};
    store_word(codes + 64 * p + 4 * row, (pair[0] & kLow) | (pair[1] & kLow) << 4);
    for (int half = 0; half < 2 && fifth != nullptr; ++half) {
      // The product moves the four bits side by side.
      const uint32_t bits = ((pair[half] >> 4 & 0x01010101) * 0x01020408U) >> 24 & 15, shift = row % 2 * 4;
      std::byte& at = fifth[16 * p + 8 * half + row / 2];
      at = (at & static_cast<std::byte>(15 << (4 - shift))) | static_cast<std::byte>(bits << shift);
    }
  }
}

// Four neighbouring bits as the fifth ones of four bytes.
uint32_t spread_fifth(uint32_t bits) {
  const uint32_t apart = (bits & 1) | (bits & 2) << 7 | (bits & 4) << 14 | (bits & 8) << 21;
  return apart << 4;
}

// Q4_0, Q4_1, Q5_0, Q5_1: a block's byte i holds columns i (low) and i + 16 (high).
void pack_32_row(const uint8_t* src, int64_t in, DType source, int64_t row, std::byte* panel) {
  const bool has_min = source == DType::kQ4_1 || source == DType::kQ5_1;
  const bool five_bits = source == DType::kQ5_0 || source == DType::kQ5_1;
  const int64_t block_size = block_bytes(source), group_size = five_bits ? kU5GroupBytes : kU4GroupBytes;
  for (int64_t g = 0; g < in / kGroup; ++g, panel += group_size) {
    const uint8_t* block = src + g * block_size;
    uint16_t scale, min;
    std::memcpy(&scale, block, 2);
    if (has_min) {
      std::memcpy(&min, block + 2, 2);
    } else {
      min = f32_to_f16((five_bits ? -16.0f : -8.0f) * f16_to_f32(scale));
    }
    store_f16(panel, row, scale);
    store_f16(panel + 32, row, min);
    const uint8_t* codes = block + (has_min ? 4 : 2);
    const uint32_t fifth = five_bits ? load_word(codes) : 0;
    if (five_bits) codes += sizeof fifth;
    const auto word = [&](int i) {
      return (load_word(codes + i % 4 * 4) >> (i / 4 * 4) & kLow) | spread_fifth(fifth >> 4 * i);
    };
    store_codes(word, row, panel + 64, five_bits ? panel + kU4GroupBytes : nullptr);
  }
}

// Q4_K and Q5_K, whose minima are subtracted.
void pack_k_row(const uint8_t* src, int64_t in, DType source, int64_t row, std::byte* panel) {
  const bool five_bits = source == DType::kQ5_K;
  for (int64_t b = 0; b < in / kBlock; ++b) {
    const uint8_t* block = src + b * block_bytes(source);
    uint16_t scale, min;
    std::memcpy(&scale, block, 2);
    std::memcpy(&min, block + 2, 2);
    store_f16(panel, row, scale);
    store_f16(panel + 32, row, min ^ 0x8000);
    panel += 64;
    const uint8_t* fifth = block + 16;
    const uint8_t* codes = block + (five_bits ? 48 : 16);
    for (int g = 0; g < kBlock / kGroup; ++g, panel += five_bits ? kK5GroupBytes : kK4GroupBytes) {
      const KScale multiples = k_scale(block + 4, g);
      panel[row] = static_cast<std::byte>(multiples.scale);
      panel[16 + row] = static_cast<std::byte>(multiples.min);
      const auto word = [&](int i) {
        const uint32_t low = load_word(codes + g / 2 * 32 + 4 * i) >> (g % 2 * 4) & kLow;
        return five_bits ? low | (load_word(fifth + 4 * i) >> g & 0x01010101) << 4 : low;
      };
      store_codes(word, row, panel + 32, five_bits ? panel + kK4GroupBytes : nullptr);
    }
  }
}

void pack_q8_row(const uint8_t* src, int64_t in, int64_t row, std::byte* panel) {
  for (int64_t g = 0; g < in / kGroup; ++g, panel += kU8GroupBytes) {
    const uint8_t* block = src + g * 34;
    uint16_t scale;
    std::memcpy(&scale, block, 2);
    store_f16(panel, row, scale);
    for (int p = 0; p < 8; ++p) store_word(panel + 32 + 64 * p + 4 * row, load_word(block + 2 + 4 * p) ^ 0x80808080);
  }
}

void pack_q6_row(const uint8_t* src, int64_t in, int64_t row, std::byte* panel) {
  for (int64_t g = 0; g < in / kGroup; ++g, panel += kU6GroupBytes) {
    const uint8_t* block = src + g / 8 * 210;
    const int64_t first = g % 8 * kGroup;  // column within the block of 256
    uint16_t scale_bits;
    std::memcpy(&scale_bits, block + 208, 2);
    const auto* scales = reinterpret_cast<const int8_t*>(block + 192);
    const int64_t scale_index = first / 16;
    for (int half = 0; half < 2; ++half) {
      const float scale = 0.25f * f16_to_f32(scale_bits) * static_cast<float>(scales[scale_index + half]);
      std::memcpy(panel + (16 * half + row) * 4, &scale, sizeof scale);
    }
    // A group is one shift of 32 neighbouring bytes: a nibble of the low part, two bits of the high part.
    const int64_t part = first / 128, quarter = first % 128 / 32;
    const uint8_t* low = block + part * 64 + quarter % 2 * 32;
    const uint8_t* high = block + 128 + part * 32;
    for (int p = 0; p < 8; ++p) {
      const uint32_t nibbles = (load_word(low + 4 * p) >> (quarter / 2 * 4)) & kLow;
      const uint32_t pairs = (load_word(high + 4 * p) >> (quarter * 2)) & 0x03030303;
      store_word(panel + 128 + 64 * p + 4 * row, nibbles << 2 | pairs << 6);
    }
  }
}

// Where kBF16Pairs has column k of a row.
int64_t pair_index(int64_t k, int64_t row) { return k / 2 * 2 * kPanelRows + 2 * row + k % 2; }

void pack_float_row(const float* src, int64_t in, PanelFormat format, int64_t row, std::byte* panel) {
  if (format == PanelFormat::kF32) {
    auto* out = reinterpret_cast<float*>(panel) + row;
    for (int64_t k = 0; k < in; ++k) out[k * kPanelRows] = src[k];
  } else if (format == PanelFormat::kBF16) {
    auto* out = reinterpret_cast<uint16_t*>(panel) + row;
    for (int64_t k = 0; k < in; ++k) out[k * kPanelRows] = f32_to_bf16(src[k]);
  } else {
    auto* out = reinterpret_cast<uint16_t*>(panel);
    for (int64_t k = 0; k < in; ++k) out[pair_index(k, row)] = f32_to_bf16(src[k]);
  }
}

}  // namespace

PanelFormat panel_format(DType source, LinearCompute compute) {
  if (source == DType::kI32 || source == DType::kI64) {
    throw invalid_argument("a weight can't be of type " + std::string(dtype_name(source)));
  }
  if (compute == LinearCompute::kF32) return PanelFormat::kF32;
  if (compute == LinearCompute::kBF16) return PanelFormat::kBF16;
  switch (source) {
    case DType::kQ4_0:
    case DType::kQ4_1:
      return PanelFormat::kU4;
    case DType::kQ5_0:
    case DType::kQ5_1:
      return PanelFormat::kU5;
    case DType::kQ4_K:
      return PanelFormat::kK4;
    case DType::kQ5_K:
      return PanelFormat::kK5;
    case DType::kQ8_0:
      return PanelFormat::kU8;
    case DType::kQ6_K:
      return PanelFormat::kU6;
    default:
      break;
  }
  throw invalid_argument("int8 arithmetic needs block-quantized weights, not " + std::string(dtype_name(source)));
}

void pack_panel(DType source, const std::byte* rows, int64_t count, int64_t in, PanelFormat format, std::byte* panel) {
  if (count < kPanelRows) std::memset(panel, 0, static_cast<size_t>(panel_bytes(format, in)));
  const int64_t row_bytes = storage_bytes(source, in);
  std::vector<float> floats;
  if (is_float(format)) floats.resize(static_cast<size_t>(in));
  for (int64_t row = 0; row < count; ++row) {
    const auto* src = reinterpret_cast<const uint8_t*>(rows + row * row_bytes);
    switch (format) {
      case PanelFormat::kU4:
      case PanelFormat::kU5:
        pack_32_row(src, in, source, row, panel);
        break;
      case PanelFormat::kK4:
      case PanelFormat::kK5:
        pack_k_row(src, in, source, row, panel);
        break;
      case PanelFormat::kU8:
        pack_q8_row(src, in, row, panel);
        break;
      case PanelFormat::kU6:
        pack_q6_row(src, in, row, panel);
        break;
      case PanelFormat::kF32:
      case PanelFormat::kBF16:
      case PanelFormat::kBF16Pairs:
        dequantize(source, src, floats.data(), in);
        pack_float_row(floats.data(), in, format, row, panel);
        break;
    }
  }
}

namespace {

// Column i of a group whose codes and fifth bits (or null) are given.
int code_of(const std::byte* codes, const std::byte* fifth, int64_t row, int64_t i) {
  const auto byte = static_cast<uint8_t>(codes[64 * (i / 8) + 4 * row + i % 4]);
  const int low = i % 8 < 4 ? byte & 15 : byte >> 4;
  if (fifth == nullptr) return low;
  const auto bits = static_cast<uint8_t>(fifth[8 * (i / 4) + row / 2]);
  return low | (bits >> (row % 2 * 4 + i % 4) & 1) << 4;
}

}  // namespace

void unpack_row(PanelFormat format, const std::byte* panel, int64_t row, int64_t in, float* dst) {
  const auto half = [](const std::byte* p, int64_t i) {
    uint16_t bits;
    std::memcpy(&bits, p + 2 * i, sizeof bits);
    return bits;
  };
  switch (format) {
    case PanelFormat::kF32:
      for (int64_t k = 0; k < in; ++k) dst[k] = reinterpret_cast<const float*>(panel)[k * kPanelRows + row];
      return;
    case PanelFormat::kBF16:
      for (int64_t k = 0; k < in; ++k) dst[k] = bf16_to_f32(half(panel, k * kPanelRows + row));
      return;
    case PanelFormat::kBF16Pairs:
      for (int64_t k = 0; k < in; ++k) dst[k] = bf16_to_f32(half(panel, pair_index(k, row)));
      return;
    case PanelFormat::kU4:
    case PanelFormat::kU5: {
      const int64_t size = format == PanelFormat::kU5 ? kU5GroupBytes : kU4GroupBytes;
      for (int64_t k = 0; k < in; ++k) {
        const std::byte* group = panel + k / kGroup * size;
        const std::byte* fifth = format == PanelFormat::kU5 ? group + kU4GroupBytes : nullptr;
        dst[k] = f16_to_f32(half(group, row)) * static_cast<float>(code_of(group + 64, fifth, row, k % kGroup)) +
                 f16_to_f32(half(group + 32, row));
      }
      return;
    }
    case PanelFormat::kK4:
    case PanelFormat::kK5: {
      const int64_t size = format == PanelFormat::kK5 ? kK5GroupBytes : kK4GroupBytes;
      for (int64_t k = 0; k < in; ++k) {
        const std::byte* block = panel + k / kBlock * (64 + kBlock / kGroup * size);
        const std::byte* group = block + 64 + k % kBlock / kGroup * size;
        const std::byte* fifth = format == PanelFormat::kK5 ? group + kK4GroupBytes : nullptr;
        const auto multiple = [&](int64_t i) { return static_cast<float>(static_cast<uint8_t>(group[i])); };
        dst[k] = f16_to_f32(half(block, row)) * multiple(row) *
                     static_cast<float>(code_of(group + 32, fifth, row, k % kGroup)) +
                 f16_to_f32(half(block + 32, row)) * multiple(16 + row);
      }
      return;
    }
    case PanelFormat::kU8:
      for (int64_t k = 0; k < in; ++k) {
        const std::byte* group = panel + k / kGroup * kU8GroupBytes;
        const int64_t i = k % kGroup;
        const int code = static_cast<uint8_t>(group[32 + 64 * (i / 4) + 4 * row + i % 4]);
        dst[k] = f16_to_f32(half(group, row)) * static_cast<float>(code - kCodeOffset);
      }
      return;
    case PanelFormat::kU6:
      for (int64_t k = 0; k < in; ++k) {
        const std::byte* group = panel + k / kGroup * kU6GroupBytes;
        const int64_t i = k % kGroup;
        const int code = static_cast<uint8_t>(group[128 + 64 * (i / 4) + 4 * row + i % 4]);
        dst[k] = reinterpret_cast<const float*>(group)[16 * (i / 16) + row] * static_cast<float>(code - kCodeOffset);
      }
      return;
  }
}

}  // namespace quire
