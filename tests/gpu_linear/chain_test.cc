// Times of the linear layers of Llama 3.1 8B; run with --gtest_also_run_disabled_tests.
#include <cstdio>
#include <functional>

#include "gpu/blas.h"
#include "gpu_kernels/device_case.h"
#include "gpu_linear/read_all.h"
#include "kernels/fill/gpu/fill.h"
#include "kernels/linear/gpu/small_rows.h"

namespace quire::gpu {
namespace {

struct Layer {
  int64_t n, k;
  SmallRowsEnd end;
  size_t at = 0;  // bytes into the weights
};

class DISABLED_Chain : public DeviceCase {
 protected:
  void SetUp() override {
    DeviceCase::SetUp();
    if (IsSkipped()) return;
    for (int i = 0; i < 32; ++i) {
      layers_.push_back({6144, 4096, SmallRowsEnd::kStore});
      layers_.push_back({4096, 4096, SmallRowsEnd::kAdd});
      layers_.push_back({28'672, 4096, SmallRowsEnd::kStore});
      layers_.push_back({4096, 14'336, SmallRowsEnd::kAdd});
    }
    layers_.push_back({128'256, 4096, SmallRowsEnd::kStore});
    for (Layer& layer : layers_) {
      layer.at = bytes_;
      bytes_ += static_cast<size_t>(layer.n * layer.k * 2);
    }
    weights_ = DeviceMemory(bytes_);
    x_ = DeviceMemory(64 * 14'336 * 4);
    y_ = DeviceMemory(64 * 128'256 * 4);
    fill_dummy(weights_.data(), DType::kBF16, static_cast<int64_t>(bytes_ / 2), 1, 0, stream());
    fill_dummy(x_.data(), DType::kBF16, 64 * 14'336, 2, 0, stream());
    stream().zero(y_.data(), y_.bytes());
    stream().wait("test");
    processors_ = use_device().multiprocessors;
    blas_ = std::make_unique<Blas>(use_device());
  }

  // Milliseconds, from a graph.
  double time(const std::function<void()>& work) {
    const Graph graph = stream().capture(work);
    double best = 1e30;
    for (int i = 0; i < 6; ++i) {
      const Event begin, end;
      stream().record(begin);
      stream().launch(graph, "timing");
      stream().record(end);
      stream().wait(end, "timing");
      if (i > 0) best = std::min(best, static_cast<double>(milliseconds_between(begin, end)));
    }
    return best;
  }

  SmallRowsProduct product(const Layer& layer, int64_t m) const {
    return {x_.data(),
            layer.k,
            static_cast<const std::byte*>(weights_.data()) + layer.at,
            y_.data(),
            layer.n,
            m,
            layer.n,
            layer.k,
            DType::kBF16,
            layer.end == SmallRowsEnd::kAdd || layer.n > 100'000 ? DType::kF32 : DType::kBF16,
            layer.end};
  }
  void mine(const Layer& layer, int64_t m) { small_rows(product(layer, m), processors_, stream()); }
  void blas(const Layer& layer, int64_t m) {
    const SmallRowsProduct p = product(layer, m);
    blas_->matmul(p.x, p.ldx, p.w, p.y, p.ldy, p.m, p.n, p.k, p.type, p.y_type, p.end == SmallRowsEnd::kAdd, stream());
  }
  double tb(double ms) const { return static_cast<double>(bytes_) / ms / 1e9; }

  // A step of the model: products with what stands between, as it takes on its own.
  double step(int64_t m, bool overlapping, bool fused, const std::function<void(const Layer&)>& one) {
    return time([&] {
      for (size_t i = 0; i < layers_.size(); ++i) {
        const auto between = [&](int blocks, double us) { pass_time(blocks, us, overlapping, stream()); };
        if (i % 2 == 0) between(static_cast<int>(m), 1.0);                         // norm
        if (i % 4 == 1) between(static_cast<int>(m) * 6, 0.8), between(264, 5.0);  // rotation, attention
        if (i % 4 == 3 && !fused) between(static_cast<int>(m) * 14, 0.8);          // silu
        one(layers_[i]);
      }
    });
  }

  std::vector<Layer> layers_;
  size_t bytes_ = 0;
  int processors_ = 0;
  DeviceMemory weights_, x_, y_;
  std::unique_ptr<Blas> blas_;
};

TEST_F(DISABLED_Chain, All) {
  for (const int blocks : {264, 528, 1056, 2112}) {
    const double ms = time([&] { read_all(weights_.data(), bytes_, blocks, y_.data(), stream()); });
    std::printf("read ceiling, %4d blocks: %.3f ms %.3f TB/s\n", blocks, ms, tb(ms));
  }
  for (const int64_t m : {1, 2, 4, 8}) {
    const double library = time([&] {
      for (const Layer& layer : layers_) blas(layer, m);
    });
    const double own = time([&] {
      for (const Layer& layer : layers_) mine(layer, m);
    });
    std::printf("m %ld library %.3f ms %.3f TB/s, small rows %.3f ms %.3f TB/s\n", static_cast<long>(m), library,
                tb(library), own, tb(own));
  }
}

TEST_F(DISABLED_Chain, Shapes) {
  for (size_t shape = 0; shape < 5; ++shape) {
    const size_t calls = shape < 4 ? 32 : 1;
    const Layer& layer = layers_[shape < 4 ? shape : 128];
    const auto each = [&](const auto& one) {
      return 1e3 / static_cast<double>(calls) * time([&] {
               for (size_t i = 0; i < calls; ++i) one(layers_[shape < 4 ? shape + 4 * i : 128]);
             });
    };
    const double library = each([&](const Layer&one) { blas(one, 8); }),
                 own = each([&](const Layer&one) { mine(one, 8); });
    const auto bytes = static_cast<double>(layer.n * layer.k * 2);
    std::printf("%6ld x %5ld m 8: library %.2f us %.3f TB/s, small rows %.2f us %.3f TB/s\n",
                static_cast<long>(layer.n), static_cast<long>(layer.k), library, bytes / library / 1e6, own,
                bytes / own / 1e6);
  }
}

TEST_F(DISABLED_Chain, Step) {
  for (const int64_t m : {1, 8}) {
    std::printf("step, m %ld, library: %.3f ms\n", static_cast<long>(m),
                step(m, false, false, [&](const Layer& layer) { blas(layer, m); }));
    for (const bool overlapping : {false, true}) {
      const double ms = step(m, overlapping, true, [&](Layer layer) {
        if (layer.n == 28'672) layer.end = SmallRowsEnd::kSiluMul;
        mine(layer, m);
      });
      std::printf("step, m %ld, small rows, neighbours overlap %d: %.3f ms\n", static_cast<long>(m), overlapping, ms);
    }
  }
}

}  // namespace
}  // namespace quire::gpu
