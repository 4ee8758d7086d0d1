#include <limits>
#include <tuple>

#include "base/thread_pool.h"
#include "gpu_kernels/device_case.h"
#include "kernels/kv_write/gpu/kv_write.h"
#include "share.h"

namespace quire::gpu {
namespace {

constexpr std::byte kUntouched{0x5a};
constexpr int32_t kBlocks = 7;

// The planes of one layer on the host.
struct Planes {
  std::vector<std::byte> k, v;
  std::vector<float> k_scales, v_scales;

  explicit Planes(const PagedKv& kv)
      : k(static_cast<size_t>(k_plane_bytes(kv)), kUntouched),
        v(static_cast<size_t>(v_plane_bytes(kv)), kUntouched),
        k_scales(static_cast<size_t>(plane_scales(kv))),
        v_scales(k_scales.size()) {
    for (size_t i = 0; i < k_scales.size(); ++i) {
      k_scales[i] = 0.01f * static_cast<float>(i % 5 + 1);
      v_scales[i] = 0.02f * static_cast<float>(i % 3 + 1);
    }
  }
  PagedKv bound(PagedKv kv) {
    kv.k = k.data(), kv.v = v.data();
    kv.k_scales = k_scales.data(), kv.v_scales = v_scales.data();
    return kv;
  }
};

// And their copies on the device.
struct DevicePlanes {
  DeviceMemory k, v, k_scales, v_scales;

  PagedKv bound(PagedKv kv) const {
    kv.k = k.data(), kv.v = v.data();
    kv.k_scales = static_cast<float*>(k_scales.data()), kv.v_scales = static_cast<float*>(v_scales.data());
    return kv;
  }
};

PagedKv cache_of(DType dtype, KvScaling scaling, KvLayout layout, int32_t head_dim, int32_t v_head_dim,
                 int32_t kv_heads, int32_t block_size) {
  PagedKv kv;
  kv.dtype = dtype;
  kv.scaling = scaling;
  kv.layout = layout;
  kv.block_size = block_size;
  kv.kv_heads = kv_heads;
  kv.head_dim = head_dim;
  kv.v_head_dim = layout == KvLayout::kPlain ? v_head_dim : head_dim;
  kv.blocks = kBlocks;
  return kv;
}

constexpr std::pair<DType, KvScaling> kCaches[] = {
    {DType::kF32, KvScaling::kNone},      {DType::kF16, KvScaling::kNone},    {DType::kBF16, KvScaling::kNone},
    {DType::kF8E4M3, KvScaling::kTensor}, {DType::kF8E4M3, KvScaling::kHead}, {DType::kF8E4M3, KvScaling::kTokenHead},
    {DType::kF8E5M2, KvScaling::kTensor}, {DType::kF8E5M2, KvScaling::kHead}, {DType::kF8E5M2, KvScaling::kTokenHead},
    {DType::kI8, KvScaling::kTensor},     {DType::kI8, KvScaling::kHead},     {DType::kI8, KvScaling::kTokenHead}};

std::string name_of(const PagedKv& kv) {
  return std::string(dtype_name(kv.dtype)) + (kv.layout == KvLayout::kPlain ? " plain" : " shuffle") + " scaling " +
         std::to_string(static_cast<int>(kv.scaling)) + " dims " + std::to_string(kv.head_dim) + "," +
         std::to_string(kv.v_head_dim);
}

// Distinct slots, some runs of neighbours, some tokens without one.
std::vector<int64_t> slots_of(int64_t m, int64_t capacity) {
  std::vector<int64_t> slots;
  for (int64_t i = 0; i < m; ++i)
    slots.push_back(i % 5 == 3 ? -1 : i < m / 2 ? i : (i * 37 + 11) % (capacity / 2) + capacity / 2);
  for (size_t i = 0; i < slots.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (slots[i] == slots[j]) slots[i] = -1;
    }
  }
  return slots;
}

// Rows of heads that are all 0, all tiny, have an infinity or a NaN.
void put_special_values(std::vector<float>& x, int64_t row_stride, int64_t n) {
  for (int64_t d = 0; d < n; ++d) {
    x[static_cast<size_t>(row_stride + d)] = 0.0f;
    x[static_cast<size_t>(2 * row_stride + d)] = 1e-44f;
  }
  x[static_cast<size_t>(4 * row_stride + n / 2)] = std::numeric_limits<float>::infinity();
  x[static_cast<size_t>(5 * row_stride + n - 1)] = std::numeric_limits<float>::quiet_NaN();
  x[static_cast<size_t>(6 * row_stride)] = -std::numeric_limits<float>::infinity();
}

class GpuKvWrite : public DeviceCase {
 protected:
  DevicePlanes upload_planes(const Planes& planes) {
    return {upload(planes.k), upload(planes.v), upload(planes.k_scales), upload(planes.v_scales)};
  }

  // What the CPU leaves in the padding of K is not told; here it is 0 in slots that were written.
  static void zero_padding(const PagedKv& kv, const std::vector<int64_t>& slots, std::vector<std::byte>& k) {
    if (kv.layout == KvLayout::kPlain) return;
    const int64_t size = block_bytes(kv.dtype);
    for (const int64_t slot : slots) {
      if (slot < 0) continue;
      for (int64_t head = 0; head < kv.kv_heads; ++head) {
        for (int64_t d = kv.head_dim; d < stored_head_dim(kv); ++d) {
          const int64_t at = ShuffleLayout::k(kv, slot / kv.block_size, slot % kv.block_size, head, d) * size;
          std::fill_n(k.begin() + at, size, std::byte{0});
        }
      }
    }
  }

  void expect_planes(const PagedKv& kv, const DevicePlanes& got, const Planes& expected, const std::string& what) {
    const auto compare = [&](const DeviceMemory& plane, const std::vector<std::byte>& host, const char* name) {
      const auto bytes = download<std::byte>(plane);
      if (kv.dtype == DType::kI8) {
        int64_t different = 0;
        for (size_t i = 0; i < bytes.size(); ++i) {
          if (bytes[i] != host[i] && ++different <= 3) {
            ADD_FAILURE() << what << " " << name << "[" << i << "] " << int(bytes[i]) << " for " << int(host[i]);
          }
        }
        return;
      }
      expect_same(kv.dtype, bytes, host, what + " " + name);
    };
    compare(got.k, expected.k, "k");
    compare(got.v, expected.v, "v");
    expect_same(DType::kF32, download<std::byte>(got.k_scales), narrowed(DType::kF32, expected.k_scales),
                what + " k scales");
    expect_same(DType::kF32, download<std::byte>(got.v_scales), narrowed(DType::kF32, expected.v_scales),
                what + " v scales");
  }

  ThreadPool pool_{1};
};

// head_dim, v_head_dim
constexpr std::pair<int32_t, int32_t> kDims[] = {{8, 8},     {24, 40},  {64, 64}, {72, 20},   {80, 80},
                                                 {128, 128}, {128, 96}, {20, 20}, {256, 256}, {512, 512}};

TEST_F(GpuKvWrite, RowsComeAsOnTheCpu) {
  constexpr int64_t kRows = 43;
  int tried = 0;
  for (const KvLayout layout : {KvLayout::kPlain, KvLayout::kShuffle}) {
    for (const auto& [dtype, scaling] : kCaches) {
      for (const auto& [head_dim, v_head_dim] : kDims) {
        for (const auto& [k_type, v_type, odd] : {std::tuple{DType::kF32, DType::kF32, 0},
                                                  {DType::kBF16, DType::kBF16, 0},
                                                  {DType::kF16, DType::kF16, 1},
                                                  {DType::kBF16, DType::kF32, 0}}) {
          if (++tried % testing::case_stride() != 0) continue;
          const PagedKv kv = cache_of(dtype, scaling, layout, head_dim, v_head_dim, 3, 16);
          const int64_t k_head = kv.head_dim + 8 + odd, v_head = kv.v_head_dim + (kv.v_head_dim % 8 == 0 ? 16 : 0);
          const int64_t k_row = 3 * k_head + 8 + odd, v_row = 3 * v_head + 24;
          std::vector<float> k_values = random_floats(kRows * k_row + 64, 1),
                             v_values = random_floats(kRows * v_row + 64, 2);
          put_special_values(k_values, k_row, kv.head_dim);
          put_special_values(v_values, v_row, kv.v_head_dim);
          const std::vector<std::byte> k = narrowed(k_type, k_values), v = narrowed(v_type, v_values);
          const std::vector<int64_t> slots = slots_of(kRows, kBlocks * 16);
          Planes expected(kv);
          const DevicePlanes planes = upload_planes(expected);
          const PagedKv host = expected.bound(kv);
          kv_write({k.data(), k_row, k_head, k_type}, {v.data(), v_row, v_head, v_type}, slots.data(), kRows, host,
                   pool_);
          zero_padding(kv, slots, expected.k);
          const DeviceMemory device_k = upload(k), device_v = upload(v), device_slots = upload(slots);
          kv_write(ConstHeadRows{device_k.data(), k_row, k_head, k_type},
                   ConstHeadRows{device_v.data(), v_row, v_head, v_type},
                   static_cast<const int64_t*>(device_slots.data()), kRows, planes.bound(kv), stream());
          expect_planes(
              kv, planes, expected,
              name_of(kv) + " from " + std::string(dtype_name(k_type)) + "," + std::string(dtype_name(v_type)));
        }
      }
    }
  }
}

TEST_F(GpuKvWrite, RotatedRowsComeAsOnTheCpu) {
  int tried = 0;
  for (const KvLayout layout : {KvLayout::kPlain, KvLayout::kShuffle}) {
    for (const auto& [dtype, scaling] : kCaches) {
      for (const auto& [head_dim, v_head_dim] : kDims) {
        for (const auto& [type, interleaved, heads, kv_heads, m] : {std::tuple{DType::kF32, false, 9, 3, 17},
                                                                    {DType::kBF16, false, 32, 8, 8},
                                                                    {DType::kF16, true, 4, 2, 43},
                                                                    {DType::kBF16, true, 3, 1, 1}}) {
          if (++tried % testing::case_stride() != 0) continue;
          const PagedKv kv = cache_of(dtype, scaling, layout, head_dim, v_head_dim, kv_heads, 32);
          const int64_t half = head_dim / 2;
          const int64_t row = (heads + kv_heads) * int64_t{head_dim} + kv_heads * int64_t{kv.v_head_dim} + 8;
          std::vector<float> values = random_floats(m * row + 64, 1);
          if (m > 8) put_special_values(values, row, row / 2);
          const std::vector<float> angles = random_floats(m * half, 3);
          std::vector<float> cos(angles.size()), sin(angles.size());
          for (size_t i = 0; i < angles.size(); ++i) cos[i] = std::cos(angles[i]), sin[i] = std::sin(angles[i]);
          const std::vector<std::byte> qkv = narrowed(type, values);
          const std::vector<int64_t> slots = slots_of(m, kBlocks * 32);
          Planes expected(kv);
          const DevicePlanes planes = upload_planes(expected);
          const PagedKv host = expected.bound(kv);
          std::vector<float> wide = widened(type, qkv);
          float* k = wide.data() + heads * head_dim;
          rope_kv_write(wide.data(), row, heads, k, row, k + kv_heads * head_dim, row, slots.data(), m, cos.data(),
                        sin.data(), half, interleaved, host, pool_);
          zero_padding(kv, slots, expected.k);
          const DeviceMemory device_qkv = upload(qkv), device_slots = upload(slots), device_cos = upload(cos),
                             device_sin = upload(sin);
          rope_kv_write(device_qkv.data(), type, row, heads, static_cast<const int64_t*>(device_slots.data()), m,
                        static_cast<const float*>(device_cos.data()), static_cast<const float*>(device_sin.data()),
                        interleaved, planes.bound(kv), stream());
          const std::string what =
              name_of(kv) + " from " + std::string(dtype_name(type)) + " heads " + std::to_string(heads);
          expect_planes(kv, planes, expected, what);
          expect_same(type, download<std::byte>(device_qkv), narrowed(type, wide), what + " q");
        }
      }
    }
  }
}

TEST_F(GpuKvWrite, BlocksAreCopiedInOrderAndReset) {
  std::mt19937 random(5);
  for (const KvLayout layout : {KvLayout::kPlain, KvLayout::kShuffle}) {
    for (const auto& [dtype, scaling, block_size, kv_heads, head_dim] :
         {std::tuple{DType::kBF16, KvScaling::kNone, 16, 8, 128},
          {DType::kI8, KvScaling::kTokenHead, 16, 3, 64},
          {DType::kF8E4M3, KvScaling::kHead, 16, 2, 24},
          {DType::kF16, KvScaling::kNone, 8, 1, 8}}) {
      PagedKv kv = cache_of(dtype, scaling, layout, head_dim, layout == KvLayout::kPlain ? head_dim + 3 : head_dim,
                            kv_heads, block_size);
      Planes expected(kv);
      for (std::byte& b : expected.k) b = static_cast<std::byte>(random() % 120);
      for (std::byte& b : expected.v) b = static_cast<std::byte>(random() % 120);
      for (size_t i = 0; i < expected.k_scales.size(); ++i) expected.k_scales[i] = static_cast<float>(i);
      const DevicePlanes planes = upload_planes(expected);
      const PagedKv host = expected.bound(kv);
      const std::vector<BlockCopy> copies = {{2, 0}, {0, 4}, {4, 5}, {1, 6}, {3, 1}, {5, 3}, {6, 2}, {0, 1}, {1, 5}};
      const std::vector<int32_t> cleared = {4, 6};
      const DeviceMemory device_copies = upload(copies), device_cleared = upload(cleared);
      kv_copy_blocks(host, copies);
      kv_reset_blocks(host, cleared);
      kv_copy_blocks(planes.bound(kv), static_cast<const BlockCopy*>(device_copies.data()),
                     static_cast<int64_t>(copies.size()), stream());
      kv_reset_blocks(planes.bound(kv), static_cast<const int32_t*>(device_cleared.data()),
                      static_cast<int64_t>(cleared.size()), stream());
      expect_planes(kv, planes, expected, name_of(kv));
    }
  }
}

}  // namespace
}  // namespace quire::gpu
