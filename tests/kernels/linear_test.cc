// Linear layers against products in double, every packed format on every instruction set of this machine.
#include "kernels/linear/linear.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/cpu_isa.h"
#include "base/error.h"
#include "kernels/activation/silu_mul.h"
#include "kernels/linear/pack.h"
#include "kernels/norm/rms_norm.h"
#include "kernels/test_values.h"

namespace quire {
namespace {

constexpr double kHalfUlp = 0x1p-24;

// A weight matrix as a checkpoint holds it, and as floats.
struct Weight {
  Weight(DType source, int64_t rows, int64_t columns, unsigned seed) : dtype(source), out(rows), in(columns) {
    file.resize(static_cast<size_t>(storage_bytes(source, out * in)));
    std::mt19937 random(seed);
    for (std::byte& byte : file) byte = static_cast<std::byte>(random());
    const auto block = static_cast<size_t>(block_bytes(source));
    std::uniform_real_distribution<float> scale(0.001f, 0.02f);
    for (size_t at = 0; at < file.size(); at += block) {
      if (source == DType::kF32) {
        const float value = scale(random) * (random() % 2 == 0 ? 50.0f : -50.0f);
        std::memcpy(&file[at], &value, sizeof value);
      } else if (source == DType::kF16 || source == DType::kBF16) {
        const float value = scale(random) * (random() % 2 == 0 ? 50.0f : -50.0f);
        put_half(at, source == DType::kF16 ? f32_to_f16(value) : f32_to_bf16(value));
      } else {
        put_half(source == DType::kQ6_K ? at + 208 : at, f32_to_f16(scale(random)));
        if (source == DType::kQ4_1 || source == DType::kQ5_1) put_half(at + 2, f32_to_f16(-8.0f * scale(random)));
        if (source == DType::kQ4_K || source == DType::kQ5_K) put_half(at + 2, f32_to_f16(scale(random)));
      }
    }
    values.resize(static_cast<size_t>(out * in));
    dequantize(source, file.data(), values.data(), out * in);
  }

  void put_half(size_t at, uint16_t bits) { std::memcpy(&file[at], &bits, sizeof bits); }

  PackedLinear::RowSource rows() const {
    return
        [this](int64_t row, int64_t, std::vector<std::byte>&) { return file.data() + storage_bytes(dtype, row * in); };
  }
  PackedLinear::Part part() const { return {out, dtype, rows()}; }

  DType dtype;
  int64_t out, in;
  std::vector<std::byte> file;
  std::vector<float> values;
};

struct Reference {
  std::vector<double> y, bound;  // [m, out]; bound: how far float arithmetic in any order may be from y
};

// x W^T in double. Under kBF16 weights are rounded first; under kInt8 rows of x are replaced by their int8 codes times
// their scale.
Reference reference_product(const std::vector<float>& x, int64_t ldx, int64_t m, const Weight& w,
                            LinearCompute compute) {
  Reference result;
  std::vector<float> row(static_cast<size_t>(w.in));
  for (int64_t i = 0; i < m; ++i) {
    std::copy_n(x.begin() + i * ldx, w.in, row.begin());
    if (compute == LinearCompute::kInt8) {
      for (auto group = row.begin(); group != row.end(); group += 32) {
        float largest = 0;
        for (int j = 0; j < 32; ++j) largest = std::max(largest, std::fabs(group[j]));
        for (int j = 0; j < 32 && largest > 0; ++j)
          group[j] = std::nearbyint(group[j] * (127.0f / largest)) * (largest / 127.0f);
      }
    }
    for (int64_t o = 0; o < w.out; ++o) {
      double sum = 0, magnitude = 0;
      for (int64_t k = 0; k < w.in; ++k) {
        float weight = w.values[static_cast<size_t>(o * w.in + k)];
        if (compute == LinearCompute::kBF16) weight = bf16_to_f32(f32_to_bf16(weight));
        sum += static_cast<double>(weight) * row[static_cast<size_t>(k)];
        magnitude += std::fabs(static_cast<double>(weight) * row[static_cast<size_t>(k)]);
      }
      // Quantized: scale * code and min may cancel in w, so that the parts are up to this much larger than w itself.
      if (compute == LinearCompute::kInt8) {
        for (int64_t k = 0; k < w.in; ++k)
          magnitude += 2 * 0.02 * 8 * 127 * std::fabs(row[static_cast<size_t>(k)]) / 16;
      }
      result.y.push_back(sum);
      // Tiles of AMX take x in two parts of 8 bits, each rounded.
      const double split = compute == LinearCompute::kBF16 && cpu_amx() ? 0x1p-18 * magnitude : 0.0;
      result.bound.push_back(static_cast<double>(w.in + 4) * kHalfUlp * magnitude + split + 1e-30);
    }
  }
  return result;
}

void expect_close(const std::vector<float>& y, int64_t ldy, const Reference& expected, int64_t m, int64_t out,
                  const std::string& what) {
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t o = 0; o < out; ++o) {
      const auto at = static_cast<size_t>(i * out + o);
      ASSERT_NEAR(y[static_cast<size_t>(i * ldy + o)], expected.y[at], expected.bound[at])
          << what << ", row " << i << ", column " << o;
    }
  }
}

std::vector<float> forward(const PackedLinear& linear, const std::vector<float>& x, int64_t ldx, int64_t m,
                           ThreadPool& pool) {
  Workspace workspace(linear.workspace_bytes(m, pool.workers()));
  std::vector<float> y(static_cast<size_t>(m * linear.out()), -7.0f);
  linear.forward({x.data(), ldx}, y.data(), linear.out(), m, false, workspace, pool);
  EXPECT_EQ(workspace.mark(), 0u);
  return y;
}

struct Format {
  DType source;
  LinearCompute compute;
};

const std::vector<Format> kFormats = {
    {DType::kF32, LinearCompute::kF32},   {DType::kF16, LinearCompute::kF32},   {DType::kQ4_1, LinearCompute::kF32},
    {DType::kF32, LinearCompute::kBF16},  {DType::kQ6_K, LinearCompute::kBF16}, {DType::kQ4_0, LinearCompute::kInt8},
    {DType::kQ4_1, LinearCompute::kInt8}, {DType::kQ5_0, LinearCompute::kInt8}, {DType::kQ5_1, LinearCompute::kInt8},
    {DType::kQ8_0, LinearCompute::kInt8}, {DType::kQ4_K, LinearCompute::kInt8}, {DType::kQ5_K, LinearCompute::kInt8},
    {DType::kQ6_K, LinearCompute::kInt8}};

std::string name_of(const Format& format) {
  return std::string(dtype_name(format.source)) + (format.compute == LinearCompute::kInt8   ? " int8"
                                                   : format.compute == LinearCompute::kBF16 ? " bf16"
                                                                                            : " f32");
}

std::vector<int64_t> widths(DType source) {
  switch (block_elements(source)) {
    case 1:
      return {1, 7, 32, 33, 200, 544};
    case 256:
      return {256, 768};
    default:
      return {32, 96, 576};
  }
}

struct NamedKernels {
  std::string name;
  const LinearKernels* kernels;
};

// Every instruction set of this machine but the scalar one.
std::vector<NamedKernels> vector_kernels() {
  std::vector<NamedKernels> all;
  if (cpu_has(CpuIsa::kAvx2)) all.push_back({"avx2", &linear_kernels_avx2()});
  if (cpu_has_avxvnni()) all.push_back({"avxvnni", &linear_kernels_avxvnni()});
  if (cpu_has(CpuIsa::kAvx512)) all.push_back({"avx512", &linear_kernels_avx512()});
  return all;
}

// Runs an instruction set's kernels without PackedLinear around them.
std::vector<float> multiply(const LinearKernels& kernels, const Weight& w, LinearCompute compute,
                            const std::vector<float>& x, int64_t m) {
  const PanelFormat format = panel_format(w.dtype, compute);
  const int64_t panels = (w.out + kPanelRows - 1) / kPanelRows, size = panel_bytes(format, w.in);
  std::vector<std::byte> memory(static_cast<size_t>(panels * size) + 64);
  std::byte* base = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
  for (int64_t p = 0; p < panels; ++p) {
    const int64_t count = std::min(kPanelRows, w.out - p * kPanelRows);
    pack_panel(w.dtype, w.file.data() + storage_bytes(w.dtype, p * kPanelRows * w.in), count, w.in, format,
               base + p * size);
  }
  const auto n = static_cast<size_t>(m * w.in);
  const bool codes = compute == LinearCompute::kInt8;
  const RowTiles tiles(m, codes ? kernels.code_tile : kernels.float_tile);
  std::vector<float> floats(n), scales(n / 32), sums(n / 32);
  std::vector<int8_t> bytes(n);
  std::vector<int32_t> offsets(n / 16);
  const PackedRows packed{floats.data(), bytes.data(), scales.data(), sums.data(), offsets.data()};
  for (int64_t tile = 0; tile < tiles.count; ++tile) {
    const int64_t first = tiles.begin(tile), rows = tiles.begin(tile + 1) - first;
    for (int64_t t = 0; t < rows; ++t) {
      EXPECT_EQ(tiles.tile_of(first + t), tile);
      (codes ? kernels.pack_codes : kernels.pack_floats)(x.data() + (first + t) * w.in, w.in, first, rows, t, packed);
    }
  }
  std::vector<float> y(static_cast<size_t>(m * w.out));
  kernels.multiply({format, base, panels, w.out, w.in, tiles, 0, tiles.count, packed, y.data(), w.out, false});
  return y;
}

TEST(Linear, MatchesDoubleForEveryFormatAndShape) {
  ThreadPool pool(2);
  for (const Format& format : kFormats) {
    for (const int64_t in : widths(format.source)) {
      for (const int64_t out : {1, 15, 16, 17, 48, 100}) {
        const Weight w(format.source, out, in, static_cast<unsigned>(out + in));
        const PackedLinear linear = PackedLinear::pack(out, in, format.source, w.rows(), format.compute, pool);
        EXPECT_EQ(linear.out(), out);
        EXPECT_EQ(linear.in(), in);
        for (const int64_t m : {1, 2, 5, 8, 13}) {
          const std::vector<float> x = random_floats(m * in, static_cast<unsigned>(m));
          expect_close(
              forward(linear, x, in, m, pool), out, reference_product(x, in, m, w, format.compute), m, out,
              name_of(format) + " " + std::to_string(out) + " x " + std::to_string(in) + ", m " + std::to_string(m));
        }
      }
    }
  }
}

// What quantizing x costs: at most half a step for each column.
TEST(Linear, Int8IsWithinHalfAStepOfFloat) {
  ThreadPool pool(1);
  const int64_t in = 576, out = 32, m = 4;
  for (const DType source : {DType::kQ4_0, DType::kQ4_1, DType::kQ8_0}) {
    const Weight w(source, out, in, 5);
    const PackedLinear linear = PackedLinear::pack(out, in, source, w.rows(), LinearCompute::kInt8, pool);
    const std::vector<float> x = random_floats(m * in, 6);
    const std::vector<float> y = forward(linear, x, in, m, pool);
    Reference exact = reference_product(x, in, m, w, LinearCompute::kF32);
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t o = 0; o < out; ++o) {
        double bound = 0;
        for (int64_t g = 0; g < in; g += 32) {
          float largest = 0;
          double weights = 0;
          for (int64_t k = g; k < g + 32; ++k) {
            largest = std::max(largest, std::fabs(x[static_cast<size_t>(i * in + k)]));
            weights += std::fabs(w.values[static_cast<size_t>(o * in + k)]);
          }
          bound += largest / 254.0 * weights * 1.0001;
        }
        const auto at = static_cast<size_t>(i * out + o);
        EXPECT_NEAR(y[at], exact.y[at], bound + 1e-4);
      }
    }
  }
}

TEST(Linear, EveryInstructionSetGivesTheSameBits) {
  for (const Format& format : kFormats) {
    for (const int64_t in : widths(format.source)) {
      const int64_t out = 49;
      const Weight w(format.source, out, in, 11);
      for (const int64_t m : {1, 3, 8, 9, 16, 21, 31}) {
        const std::vector<float> x = random_floats(m * in, 12);
        const std::vector<float> scalar = multiply(linear_kernels_scalar(), w, format.compute, x, m);
        expect_close(scalar, out, reference_product(x, in, m, w, format.compute), m, out, "scalar " + name_of(format));
        for (const NamedKernels& isa : vector_kernels()) {
          EXPECT_EQ(multiply(*isa.kernels, w, format.compute, x, m), scalar)
              << name_of(format) << " " << isa.name << ", m " << m;
        }
      }
    }
  }
}

// Codes and activations at their extremes: the int16 steps inside some instruction sets must not saturate.
TEST(Linear, ExtremeCodesDoNotSaturate) {
  const int64_t in = 256, out = 16, m = 12;
  struct Codes {
    DType source;
    size_t begin, end;  // of the codes and the scales' multiples in a block
  };
  for (const auto& [source, begin, end] : std::vector<Codes>{{DType::kQ4_1, 4, 20},
                                                             {DType::kQ5_1, 4, 24},
                                                             {DType::kQ8_0, 2, 34},
                                                             {DType::kQ4_K, 4, 144},
                                                             {DType::kQ5_K, 4, 176},
                                                             {DType::kQ6_K, 0, 208}}) {
    for (const int fill : {0x00, 0x7f, 0x80, 0xff}) {
      Weight w(source, out, in, 3);
      for (size_t at = 0; at < w.file.size(); at += static_cast<size_t>(block_bytes(source))) {
        for (size_t i = begin; i < end; ++i) w.file[at + i] = static_cast<std::byte>(fill);
      }
      dequantize(source, w.file.data(), w.values.data(), out * in);
      for (const float sign : {1.0f, -1.0f}) {
        const std::vector<float> x(static_cast<size_t>(m * in), sign * 2.5f);
        const std::vector<float> scalar = multiply(linear_kernels_scalar(), w, LinearCompute::kInt8, x, m);
        expect_close(scalar, out, reference_product(x, in, m, w, LinearCompute::kInt8), m, out,
                     std::string(dtype_name(source)));
        for (const NamedKernels& isa : vector_kernels()) {
          EXPECT_EQ(multiply(*isa.kernels, w, LinearCompute::kInt8, x, m), scalar) << isa.name;
        }
      }
    }
  }
}

TEST(Linear, ARowDependsNeitherOnOtherRowsNorOnThreads) {
  ThreadPool one(1), two(2), five(5);
  for (const Format& format : kFormats) {
    const int64_t in = block_elements(format.source) == 256 ? 512 : 576, out = 83, most = 300;
    const Weight w(format.source, out, in, 21);
    const PackedLinear linear = PackedLinear::pack(out, in, format.source, w.rows(), format.compute, two);
    const std::vector<float> x = random_floats(most * in, 22);
    const std::vector<float> all = forward(linear, x, in, most, two);
    for (const int64_t m : {1, 2, 3, 7, 8, 9, 17, 64, 300}) {
      const std::vector<float> expected(all.begin(), all.begin() + m * out);
      EXPECT_EQ(forward(linear, x, in, m, one), expected) << name_of(format) << ", m " << m;
      EXPECT_EQ(forward(linear, x, in, m, five), expected) << name_of(format) << ", m " << m;
    }
  }
}

TEST(Linear, AccumulatesAndKeepsToItsColumns) {
  ThreadPool pool(2);
  for (const Format& format : kFormats) {
    const int64_t in = 256, out = 37, m = 9, ldx = in + 5, ldy = out + 3;
    const Weight w(format.source, out, in, 31);
    const PackedLinear linear = PackedLinear::pack(out, in, format.source, w.rows(), format.compute, pool);
    std::vector<float> x = random_floats(m * ldx, 32);
    const std::vector<float> product = forward(linear, x, ldx, m, pool);
    const std::vector<float> before = random_floats(m * ldy, 33);
    std::vector<float> y = before;
    Workspace workspace(linear.workspace_bytes(m, pool.workers()));
    linear.forward({x.data(), ldx}, y.data(), ldy, m, true, workspace, pool);
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t o = 0; o < ldy; ++o) {
        const auto at = static_cast<size_t>(i * ldy + o);
        const float expected = o < out ? before[at] + product[static_cast<size_t>(i * out + o)] : before[at];
        ASSERT_EQ(y[at], expected) << name_of(format) << ", row " << i << ", column " << o;
      }
    }
  }
}

// Rows made on the way are those that the ops of their own make.
TEST(Linear, RowsMadeOnTheWayAreTheSame) {
  ThreadPool pool(3);
  for (const Format& format : kFormats) {
    const int64_t in = 256, out = 19, ldx = 2 * in + 3;
    const Weight w(format.source, out, in, 61);
    const PackedLinear linear = PackedLinear::pack(out, in, format.source, w.rows(), format.compute, pool);
    const std::vector<float> weight = random_floats(in, 62);
    for (const int64_t m : {1, 9, 40}) {
      const std::vector<float> x = random_floats(m * ldx, 63);
      std::vector<float> normed(static_cast<size_t>(m * in)), activated(normed.size());
      for (int64_t i = 0; i < m; ++i) {
        rms_norm(&x[static_cast<size_t>(i * ldx)], weight.data(), 1e-5f, &normed[static_cast<size_t>(i * in)], 1, in,
                 pool);
        silu_mul(&x[static_cast<size_t>(i * ldx)], &activated[static_cast<size_t>(i * in)], in, 1, in, pool);
      }
      using Form = LinearInput::Form;
      for (const auto& [input, rows] : std::vector<std::pair<LinearInput, std::vector<float>*>>{
               {{x.data(), ldx, Form::kRmsNorm, weight.data(), 1e-5f}, &normed},
               {{x.data(), ldx, Form::kSiluMul}, &activated}}) {
        Workspace workspace(linear.workspace_bytes(m, pool.workers()));
        std::vector<float> y(static_cast<size_t>(m * out));
        linear.forward(input, y.data(), out, m, false, workspace, pool);
        EXPECT_EQ(y, forward(linear, *rows, in, m, pool)) << name_of(format) << ", m " << m;
      }
    }
  }
}

// Seams inside a panel, parts of different code widths.
TEST(Linear, StackedPartsEqualThePartsAlone) {
  ThreadPool pool(2);
  const int64_t in = 256, m = 5;
  const std::vector<std::vector<Format>> stacks = {
      {{DType::kQ4_1, LinearCompute::kInt8},
       {DType::kQ6_K, LinearCompute::kInt8},
       {DType::kQ8_0, LinearCompute::kInt8}},
      {{DType::kQ4_1, LinearCompute::kInt8},
       {DType::kQ4_0, LinearCompute::kInt8},
       {DType::kQ4_1, LinearCompute::kInt8}},
      {{DType::kQ5_0, LinearCompute::kInt8},
       {DType::kQ4_K, LinearCompute::kInt8},
       {DType::kQ5_K, LinearCompute::kInt8}},
      {{DType::kF32, LinearCompute::kF32}, {DType::kQ8_0, LinearCompute::kF32}, {DType::kF16, LinearCompute::kF32}}};
  const std::vector<float> x = random_floats(m * in, 41);
  for (const auto& stack : stacks) {
    for (const std::vector<int64_t>& outs : {std::vector<int64_t>{32, 16, 64}, std::vector<int64_t>{17, 3, 40}}) {
      std::vector<Weight> weights;
      for (size_t i = 0; i < stack.size(); ++i)
        weights.emplace_back(stack[i].source, outs[i], in, static_cast<unsigned>(i));
      std::vector<PackedLinear::Part> parts;
      for (const Weight& w : weights) parts.push_back(w.part());
      const PackedLinear linear = PackedLinear::pack_stacked(parts, in, stack[0].compute, pool);
      const std::vector<float> y = forward(linear, x, in, m, pool);
      int64_t first = 0;
      std::vector<float> row(static_cast<size_t>(in));
      for (const Weight& w : weights) {
        const PackedLinear alone = PackedLinear::pack(w.out, in, w.dtype, w.rows(), stack[0].compute, pool);
        const std::vector<float> expected = forward(alone, x, in, m, pool);
        for (int64_t i = 0; i < m; ++i) {
          for (int64_t o = 0; o < w.out; ++o) {
            ASSERT_EQ(y[static_cast<size_t>(i * linear.out() + first + o)],
                      expected[static_cast<size_t>(i * w.out + o)]);
          }
        }
        for (int64_t o = 0; o < w.out; ++o) {
          linear.dequantize_row(first + o, row.data());
          ASSERT_EQ(row, std::vector<float>(w.values.begin() + o * in, w.values.begin() + (o + 1) * in));
        }
        first += w.out;
      }
    }
  }
}

TEST(Linear, TakesTheBytesOfTheFile) {
  ThreadPool pool(1);
  for (const DType source : {DType::kQ4_1, DType::kQ5_1, DType::kQ8_0}) {
    const Weight w(source, 64, 576, 1);
    EXPECT_EQ(PackedLinear::pack(64, 576, source, w.rows(), LinearCompute::kInt8, pool).bytes(), w.file.size());
  }
}

// What is no number must not come out as one.
TEST(Linear, NotANumberInAnActivationStays) {
  ThreadPool pool(1);
  const int64_t in = 64, out = 16;
  const Weight w(DType::kQ4_1, out, in, 51);
  const PackedLinear linear = PackedLinear::pack(out, in, w.dtype, w.rows(), LinearCompute::kInt8, pool);
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (const int64_t at : {0, 17, 40}) {
      std::vector<float> x = random_floats(in, 52);
      x[static_cast<size_t>(at)] = bad;
      for (const float value : forward(linear, x, in, 1, pool)) EXPECT_FALSE(std::isfinite(value));
    }
  }
  std::vector<float> zeros(static_cast<size_t>(in), 0.0f);
  zeros[3] = 1e-42f;
  for (const float value : forward(linear, zeros, in, 1, pool)) EXPECT_NEAR(value, 0.0f, 1e-38f);
}

TEST(Linear, RefusesWhatItCannotPack) {
  ThreadPool pool(2);
  const Weight w(DType::kQ4_1, 64, 32, 61);
  const auto pack = [&](int64_t out, int64_t in, DType source, LinearCompute compute) {
    PackedLinear::pack(out, in, source, w.rows(), compute, pool);
  };
  EXPECT_THROW(pack(1, 33, DType::kQ4_1, LinearCompute::kInt8), Error);
  EXPECT_THROW(pack(1, 128, DType::kQ6_K, LinearCompute::kF32), Error);
  EXPECT_THROW(pack(0, 32, DType::kQ4_1, LinearCompute::kInt8), Error);
  EXPECT_THROW(pack(1, 0, DType::kF32, LinearCompute::kF32), Error);
  EXPECT_THROW(pack(1, 32, DType::kI32, LinearCompute::kF32), Error);
  EXPECT_THROW(pack(1, 32, DType::kF16, LinearCompute::kInt8), Error);
  const auto broken = [](int64_t, int64_t, std::vector<std::byte>&) -> const std::byte* {
    throw std::runtime_error("read failed");
  };
  EXPECT_THROW(PackedLinear::pack(64, 32, DType::kQ4_1, broken, LinearCompute::kInt8, pool), std::runtime_error);
}

}  // namespace
}  // namespace quire
