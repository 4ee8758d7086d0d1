#include "kernels/linear/linear.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/cpu_isa.h"
#include "base/error.h"
#include "kernels/linear/pack.h"

namespace quire {
namespace {

const LinearKernels& kernels_for(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kAvx512: return linear_kernels_avx512();
    case CpuIsa::kAvx2: return linear_kernels_avx2();
    case CpuIsa::kScalar: break;
  }
  return linear_kernels_scalar();
}

// Memory of one packed weight: whole pages of its own, huge ones where the kernel gives them (fewer TLB misses on a stream).
class Pages {
 public:
  explicit Pages(size_t bytes) : bytes_(bytes) {
    void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    constexpr size_t kHugePage = size_t{2} << 20;
    if (bytes >= 4 * kHugePage) madvise(p, bytes, MADV_HUGEPAGE);
    data_ = static_cast<std::byte*>(p);
  }
  ~Pages() { munmap(data_, bytes_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  std::byte* data_;
  size_t bytes_;
};

// Rows of one format; a stack of parts with one format is one segment.
struct Segment {
  PanelFormat format;
  int64_t first_row, rows, first_panel, panels;
  size_t offset;  // of the first panel
};

constexpr int64_t panel_count(int64_t rows) { return (rows + kPanelRows - 1) / kPanelRows; }

}  // namespace

struct PackedLinear::Impl {
  int64_t out = 0, in = 0, panels = 0;
  LinearCompute compute = LinearCompute::kF32;
  std::vector<Segment> segments;
  std::unique_ptr<Pages> pages;
  const LinearKernels* kernels = nullptr;
};

PackedLinear::PackedLinear() = default;
PackedLinear::PackedLinear(PackedLinear&&) noexcept = default;
PackedLinear& PackedLinear::operator=(PackedLinear&&) noexcept = default;
PackedLinear::~PackedLinear() = default;

PackedLinear PackedLinear::pack(int64_t out, int64_t in, DType source, const RowSource& rows, LinearCompute compute, ThreadPool& pool) {
  return pack_stacked({{out, source, rows}}, in, compute, pool);
}

PackedLinear PackedLinear::pack_stacked(const std::vector<Part>& parts, int64_t in, LinearCompute compute, ThreadPool& pool) {
  auto impl = std::make_unique<Impl>();
  impl->in = in;
  impl->compute = compute;
  impl->kernels = &kernels_for(cpu_isa());
  size_t bytes = 0;
  // Neighbours of one format share a segment if the seam falls on a panel's edge; else the seam would need rows of two sources in one panel.
  struct PartPlace {
    size_t segment;
    int64_t first_panel;
  };
  std::vector<PartPlace> places;
  for (const Part& part : parts) {
    if (part.out < 1 || in < 1 || in % block_elements(part.source) != 0) {
      throw invalid_argument("a weight of " + std::to_string(part.out) + " x " + std::to_string(in) + " is no whole number of " +
                             std::string(dtype_name(part.source)) + " blocks");
    }
    const PanelFormat format = panel_format(part.source, compute);
    const bool joins = !impl->segments.empty() && impl->segments.back().format == format && impl->segments.back().rows % kPanelRows == 0;
    if (joins) {
      Segment& segment = impl->segments.back();
      places.push_back({impl->segments.size() - 1, segment.panels});
      segment.rows += part.out;
      segment.panels += panel_count(part.out);
    } else {
      places.push_back({impl->segments.size(), 0});
      impl->segments.push_back({format, impl->out, part.out, impl->panels, panel_count(part.out), bytes});
    }
    bytes += static_cast<size_t>(panel_count(part.out) * panel_bytes(format, in));
    impl->out += part.out;
    impl->panels += panel_count(part.out);
  }
  impl->pages = std::make_unique<Pages>(bytes);

  std::atomic<bool> failed = false;
  std::exception_ptr error;
  for (size_t i = 0; i < parts.size(); ++i) {
    const Part& part = parts[i];
    const Segment& segment = impl->segments[places[i].segment];
    const int64_t size = panel_bytes(segment.format, in);
    std::byte* base = impl->pages->data() + segment.offset + places[i].first_panel * size;
    pool.parallel_for(panel_count(part.out), [&](int64_t begin, int64_t end, int) {
      try {
        std::vector<std::byte> scratch;
        for (int64_t panel = begin; panel < end; ++panel) {
          const int64_t row = panel * kPanelRows, count = std::min(kPanelRows, part.out - row);
          pack_panel(part.source, part.rows(row, count, scratch), count, in, segment.format, base + panel * size);
        }
      } catch (...) {
        if (!failed.exchange(true)) error = std::current_exception();
      }
    });
    if (error) std::rethrow_exception(error);
  }
  PackedLinear packed;
  packed.impl_ = std::move(impl);
  return packed;
}

int64_t PackedLinear::out() const { return impl_->out; }
int64_t PackedLinear::in() const { return impl_->in; }
size_t PackedLinear::bytes() const { return impl_ ? impl_->pages->bytes() : 0; }
LinearCompute PackedLinear::compute() const { return impl_->compute; }

size_t PackedLinear::workspace_bytes(int64_t m) const {
  if (impl_->compute != LinearCompute::kInt8) return 0;
  constexpr size_t kAlignmentSlack = 3 * 64;
  const int64_t groups = impl_->in / kGroup;
  return static_cast<size_t>(m * (impl_->in + groups * 4 + groups * 2 * 4)) + kAlignmentSlack;
}

void PackedLinear::forward(const float* x, int64_t ldx, float* y, int64_t ldy, int64_t m, bool accumulate, Workspace& workspace,
                           ThreadPool& pool) const {
  const Impl& impl = *impl_;
  const size_t mark = workspace.mark();
  QuantizedRows quantized{};
  if (impl.compute == LinearCompute::kInt8) {
    const int64_t groups = impl.in / kGroup;
    auto* codes = workspace.take<int8_t>(static_cast<size_t>(m * impl.in));
    auto* scales = workspace.take<float>(static_cast<size_t>(m * groups));
    auto* sums = workspace.take<int32_t>(static_cast<size_t>(m * groups * 2));
    const auto quantize = [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        impl.kernels->quantize_row(x + i * ldx, impl.in, codes + i * impl.in, scales + i * groups, sums + i * groups * 2);
      }
    };
    pool.parallel_for_if_large(m, m * impl.in, quantize);
    quantized = {codes, scales, sums};
  }
  pool.parallel_for(impl.panels, [&](int64_t begin, int64_t end, int) {
    for (const Segment& segment : impl.segments) {
      const int64_t first = std::max(begin, segment.first_panel), last = std::min(end, segment.first_panel + segment.panels);
      if (first >= last) continue;
      const int64_t skip = first - segment.first_panel;
      PanelJob job{};
      job.format = segment.format;
      job.panels = impl.pages->data() + segment.offset + skip * panel_bytes(segment.format, impl.in);
      job.panel_count = last - first;
      job.rows = std::min(segment.rows - skip * kPanelRows, (last - first) * kPanelRows);
      job.in = impl.in;
      job.x = x;
      job.ldx = ldx;
      job.quantized = quantized;
      job.y = y + segment.first_row + skip * kPanelRows;
      job.ldy = ldy;
      job.m = m;
      job.accumulate = accumulate;
      impl.kernels->multiply(job);
    }
  });
  workspace.release(mark);
}

void PackedLinear::dequantize_row(int64_t row, float* dst) const {
  for (const Segment& segment : impl_->segments) {
    if (row >= segment.first_row + segment.rows) continue;
    const int64_t at = row - segment.first_row;
    const std::byte* panel = impl_->pages->data() + segment.offset + at / kPanelRows * panel_bytes(segment.format, impl_->in);
    return unpack_row(segment.format, panel, at % kPanelRows, impl_->in, dst);
  }
  throw std::logic_error("dequantize_row: no such row");
}

}  // namespace quire
