// Rates of the linear kernels beside the limits of the machine, measured in the same run.
// usage: quire_linear_bench [threads]      QUIRE_CPU_ISA chooses the instruction set
// Weights are copies of one matrix, enough of them to exceed the caches that belong to a core, visited in turn as the
// layers of a model are.
#include <immintrin.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "base/cpu_isa.h"
#include "base/numa.h"
#include "kernels/linear/linear.h"

namespace quire {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Best of several runs of fn, which repeats until a run takes long enough to be measured.
template <class Fn>
double best_seconds(Fn fn) {
  constexpr double kRunSeconds = 0.03;
  constexpr int kRuns = 7;
  fn();
  int repeats = 1;
  double best = 1e9;
  for (int run = 0; run < kRuns;) {
    const auto start = Clock::now();
    for (int i = 0; i < repeats; ++i) fn();
    const double elapsed = seconds_since(start);
    if (elapsed < kRunSeconds) {
      repeats = static_cast<int>(repeats * std::min(10.0, 1.2 * kRunSeconds / std::max(elapsed, 1e-9))) + 1;
      continue;
    }
    best = std::min(best, elapsed / repeats);
    ++run;
  }
  return best;
}

constexpr int64_t kPeakSteps = 1 << 16;
constexpr int kPeakChains = 11;  // what AVX2's 16 registers hold beside operands

__attribute__((target("avx512f,avx512vnni"))) int32_t int8_loop_avx512() {
  __m512i sums[kPeakChains];
#pragma GCC unroll 16
  for (__m512i& sum : sums) sum = _mm512_setzero_si512();
  __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(1);
  for (int64_t step = 0; step < kPeakSteps; ++step) {
    asm volatile("" : "+v"(a), "+v"(b));
#pragma GCC unroll 16
    for (__m512i& sum : sums) sum = _mm512_dpbusd_epi32(sum, a, b);
  }
#pragma GCC unroll 16
  for (int i = 1; i < kPeakChains; ++i) sums[0] = _mm512_add_epi32(sums[0], sums[i]);
  int32_t lanes[16];
  std::memcpy(lanes, &sums[0], sizeof lanes);
  return std::accumulate(lanes, lanes + 16, 0);
}

__attribute__((target("avx2"))) int32_t int8_loop_avx2() {
  __m256i sums[kPeakChains];
#pragma GCC unroll 16
  for (__m256i& sum : sums) sum = _mm256_setzero_si256();
  __m256i a = _mm256_set1_epi8(3);
  const __m256i b = _mm256_set1_epi8(1), ones = _mm256_set1_epi16(1);
  for (int64_t step = 0; step < kPeakSteps; ++step) {
#pragma GCC unroll 16
    for (__m256i& sum : sums) {
      asm volatile("" : "+x"(a));  // else the chains would share one product
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), ones));
    }
  }
#pragma GCC unroll 16
  for (int i = 1; i < kPeakChains; ++i) sums[0] = _mm256_add_epi32(sums[0], sums[i]);
  int32_t lanes[8];
  std::memcpy(lanes, &sums[0], sizeof lanes);
  return std::accumulate(lanes, lanes + 8, 0);
}

constexpr int kFloatChains = 12;

// What products of floats could do: by multiply-adds of floats, by dot products of bfloat16 pairs.
__attribute__((target("avx512f,avx512bf16"))) float float_loop(bool pairs) {
  __m512 sums[kFloatChains];
#pragma GCC unroll 16
  for (__m512& sum : sums) {
    sum = _mm512_setzero_ps();
    asm volatile("" : "+v"(sum));  // else all of them would be one
  }
  __m512i bits = _mm512_set1_epi32(0x30003000);
  for (int64_t step = 0; step < kPeakSteps; ++step) {
    asm volatile("" : "+v"(bits));
    const __m512 a = _mm512_castsi512_ps(bits);
    if (pairs) {
#pragma GCC unroll 16
      for (__m512& sum : sums) sum = _mm512_dpbf16_ps(sum, (__m512bh)bits, (__m512bh)bits);
    } else {
#pragma GCC unroll 16
      for (__m512& sum : sums) sum = _mm512_fmadd_ps(a, a, sum);
    }
  }
#pragma GCC unroll 16
  for (int i = 1; i < kFloatChains; ++i) sums[0] = _mm512_add_ps(sums[0], sums[i]);
  float lanes[16];
  std::memcpy(lanes, &sums[0], sizeof lanes);
  return std::accumulate(lanes, lanes + 16, 0.0f);
}

// GFLOP/s of one core.
double float_peak(bool pairs) {
  volatile float sink = 0;
  const double seconds = best_seconds([&] { sink = float_loop(pairs); });
  return static_cast<double>(kPeakSteps) * kFloatChains * (pairs ? 64 : 32) / seconds * 1e-9;
}

// int8 multiply-adds from registers, in GOP/s (one multiply-add = 2).
double int8_peak(ThreadPool& pool) {
  const bool wide = cpu_isa() == CpuIsa::kAvx512;
  std::vector<int32_t> sink(static_cast<size_t>(pool.workers()) * 16);
  const double seconds = best_seconds([&] {
    pool.run(
        [&](int worker) { sink[static_cast<size_t>(worker) * 16] = wide ? int8_loop_avx512() : int8_loop_avx2(); });
  });
  return static_cast<double>(kPeakSteps) * kPeakChains * (wide ? 128 : 64) * pool.workers() / seconds * 1e-9;
}

__attribute__((target("avx2"))) int64_t read_bytes(const std::byte* data, int64_t bytes) {
  __m256i sums[4] = {};
  for (int64_t i = 0; i + 128 <= bytes; i += 128) {
    _mm_prefetch(reinterpret_cast<const char*>(data + i + 1024), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(data + i + 1088), _MM_HINT_T0);
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      sums[j] = _mm256_xor_si256(sums[j], _mm256_loadu_si256(reinterpret_cast<const __m256i*>(data + i + 32 * j)));
    }
  }
  const __m256i all = _mm256_xor_si256(_mm256_xor_si256(sums[0], sums[1]), _mm256_xor_si256(sums[2], sums[3]));
  return _mm256_extract_epi64(all, 0) ^ _mm256_extract_epi64(all, 2);
}

// GB/s of reading `bytes` over and over.
double read_peak(int64_t bytes, ThreadPool& pool) {
  std::vector<std::byte> data(static_cast<size_t>(bytes), std::byte{1});
  std::vector<int64_t> sink(static_cast<size_t>(pool.workers()) * 8);
  const double seconds = best_seconds([&] {
    pool.parallel_for(bytes / 4096, [&](int64_t begin, int64_t end, int worker) {
      sink[static_cast<size_t>(worker) * 8] ^= read_bytes(data.data() + begin * 4096, (end - begin) * 4096);
    });
  });
  return static_cast<double>(bytes) / seconds * 1e-9;
}

// Random blocks whose scales are small normal numbers.
std::vector<std::byte> random_rows(DType dtype, int64_t out, int64_t in) {
  std::mt19937 random(7);
  std::vector<std::byte> rows(static_cast<size_t>(storage_bytes(dtype, out * in)));
  if (dtype == DType::kF32) {
    for (size_t i = 0; i < rows.size(); i += 4) {
      const float value = static_cast<float>(random() % 2001) * 1e-3f - 1.0f;
      std::memcpy(&rows[i], &value, 4);
    }
    return rows;
  }
  for (std::byte& byte : rows) byte = static_cast<std::byte>(random());
  const auto size = static_cast<size_t>(block_bytes(dtype));
  const uint16_t scale = f32_to_f16(0.01f);
  for (size_t block = 0; block < rows.size(); block += size) {
    const size_t at = dtype == DType::kQ6_K ? block + 208 : block;
    std::memcpy(&rows[at], &scale, 2);
    if (dtype == DType::kQ4_1 || dtype == DType::kQ4_K || dtype == DType::kQ5_K) std::memcpy(&rows[at + 2], &scale, 2);
  }
  return rows;
}

void measure(DType dtype, LinearCompute compute, int64_t out, int64_t in, ThreadPool& pool) {
  constexpr double kWorkingSet = 96e6;
  const std::vector<std::byte> rows = random_rows(dtype, out, in);
  const int64_t row_bytes = storage_bytes(dtype, in);
  const auto source = [&](int64_t row, int64_t, std::vector<std::byte>&) { return rows.data() + row * row_bytes; };
  const auto start = Clock::now();
  std::vector<PackedLinear> copies;
  double bytes = 0;
  while (bytes < kWorkingSet) {
    copies.push_back(PackedLinear::pack(out, in, dtype, source, compute, pool));
    bytes += static_cast<double>(copies.back().bytes());
  }
  const double pack_rate = bytes / seconds_since(start) * 1e-9;
  std::printf("%-6s %6ld x %4ld", std::string(dtype_name(dtype)).c_str(), out, in);
  for (const int64_t m : {1, 8, 32, 256}) {
    std::vector<float> x(static_cast<size_t>(m * in)), y(static_cast<size_t>(m * out));
    std::mt19937 random(3);
    for (float& value : x) value = static_cast<float>(random() % 2001) * 1e-3f - 1.0f;
    Workspace workspace(copies[0].workspace_bytes(m, pool.workers()));
    size_t next = 0;
    const double seconds = best_seconds([&] {
      copies[next].forward({x.data(), in}, y.data(), out, m, false, workspace, pool);
      next = (next + 1) % copies.size();
    });
    const double operations = 2.0 * static_cast<double>(m * out * in);
    std::printf(" |%8.1f us %6.0f GOP/s", seconds * 1e6, operations / seconds * 1e-9);
    if (m == 1) std::printf(" %5.1f GB/s", static_cast<double>(copies[0].bytes()) / seconds * 1e-9);
  }
  std::printf(" | pack %.1f GB/s\n", pack_rate);
  std::fflush(stdout);
}

void run(int threads) {
  ThreadPool pool(threads);
  std::printf("instruction set %s, %d threads: int8 %.0f GOP/s, read %.1f GB/s (256 MB), %.1f GB/s (1 MB a thread)\n",
              std::string(cpu_kernels_name()).c_str(), threads, int8_peak(pool), read_peak(256 << 20, pool),
              read_peak(int64_t{1 << 20} * threads, pool));
  if (__builtin_cpu_supports("avx512bf16") != 0) {
    std::printf("one core, 512 bits: f32 multiply-add %.0f GFLOP/s, vdpbf16ps %.0f GFLOP/s\n", float_peak(false),
                float_peak(true));
  }
  std::printf(
      "                    | m = 1                             | m = 8                  | m = 32                 | m = "
      "256\n");
  struct Shape {
    int64_t out, in;
  };
  for (const Shape shape : {Shape{960, 576}, {576, 576}, {3072, 576}, {576, 1536}}) {
    measure(DType::kQ4_1, LinearCompute::kInt8, shape.out, shape.in, pool);
  }
  measure(DType::kQ8_0, LinearCompute::kInt8, 49152, 576, pool);
  measure(DType::kQ8_0, LinearCompute::kInt8, 3072, 576, pool);
  for (const DType dtype : {DType::kQ4_K, DType::kQ5_K, DType::kQ6_K})
    measure(dtype, LinearCompute::kInt8, 3072, 768, pool);
  measure(DType::kF32, LinearCompute::kF32, 3072, 576, pool);
  measure(DType::kF32, LinearCompute::kBF16, 3072, 576, pool);
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  quire::run(argc > 1 ? std::atoi(argv[1]) : quire::default_thread_count());
  return 0;
}
