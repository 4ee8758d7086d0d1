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
#include "kernels/simd/vector_kernels.h"

namespace quire {
namespace {

const LinearKernels& kernels_for(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kAvx512:
      return linear_kernels_avx512();
    case CpuIsa::kAvx2:
      return cpu_avxvnni() ? linear_kernels_avxvnni() : linear_kernels_avx2();
    case CpuIsa::kScalar:
      break;
  }
  return linear_kernels_scalar();
}

bool takes_tiles(LinearCompute compute, int64_t in) {
  return compute == LinearCompute::kBF16 && in % kGroup == 0 && cpu_amx();
}

// Memory of one packed weight: whole pages of its own, huge ones where the kernel gives them (fewer TLB misses on a
// stream).
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

constexpr size_t kAlignmentSlack = Workspace::kAlignment;  // of one piece of workspace
constexpr int64_t kGroupSideBytes = 4 + 4 + 8;             // scale, sum and offsets of a group of x
constexpr int64_t kBlockBytes = 256 << 10;                 // of x that a core's second cache holds beside the panels
constexpr int64_t kItemsPerWorker = 8;
constexpr int64_t kShareRows = 32;  // below, a panel's codes would be unpacked twice for too few rows

// Row i of the input, made in `scratch` [in] unless it is there already.
const float* row_of(const LinearInput& input, int64_t i, int64_t in, const VectorKernels& kernels, float* scratch) {
  const float* row = input.x + i * input.ldx;
  switch (input.form) {
    case LinearInput::Form::kRows:
      return row;
    case LinearInput::Form::kRmsNorm:
      kernels.rms_norm(row, input.norm_weight, input.norm_eps, scratch, in);
      return scratch;
    case LinearInput::Form::kSiluMul:
      kernels.silu_mul(row, row + in, scratch, in);
      return scratch;
  }
  return row;
}

// Passes over a row until it is packed.
int64_t passes_of(LinearInput::Form form) {
  switch (form) {
    case LinearInput::Form::kRows:
      return 2;
    case LinearInput::Form::kRmsNorm:
      return 3;
    case LinearInput::Form::kSiluMul:
      return 4;
  }
  return 2;
}

constexpr int64_t panel_count(int64_t rows) { return (rows + kPanelRows - 1) / kPanelRows; }

}  // namespace

struct PackedLinear::Impl {
  int64_t out = 0, in = 0, panels = 0;
  LinearCompute compute = LinearCompute::kF32;
  std::vector<Segment> segments;
  std::unique_ptr<Pages> pages;
  const LinearKernels* kernels = nullptr;

  size_t float_bytes(int64_t m) const {
    return static_cast<size_t>(m * in) * sizeof(float) + (kernels == &linear_kernels_amx() ? kTileSlack : 0);
  }

  // Of one worker's scratch, whole cache lines.
  int64_t scratch_floats() const { return (in + 15) / 16 * 16; }

  PackedRows take_rows(int64_t m, Workspace& workspace) const {
    PackedRows rows{};
    if (compute != LinearCompute::kInt8) {
      rows.floats = workspace.take<float>(float_bytes(m) / sizeof(float));
      return rows;
    }
    const auto groups = static_cast<size_t>(m * in / kGroup);
    rows.codes = workspace.take<int8_t>(static_cast<size_t>(m * in));
    rows.scales = workspace.take<float>(groups);
    rows.sums = workspace.take<float>(groups);
    rows.offsets = workspace.take<int32_t>(groups * 2);
    return rows;
  }

  // Panels [begin, end) of all segments against the tiles of `job`, which lacks what depends on the panels.
  void multiply(PanelJob& job, float* y, int64_t begin, int64_t end) const {
    for (const Segment& segment : segments) {
      const int64_t first = std::max(begin, segment.first_panel),
                    last = std::min(end, segment.first_panel + segment.panels);
      if (first >= last) continue;
      const int64_t skip = first - segment.first_panel;
      job.format = segment.format;
      job.panels = pages->data() + segment.offset + skip * panel_bytes(segment.format, in);
      job.panel_count = last - first;
      job.rows = std::min(segment.rows - skip * kPanelRows, (last - first) * kPanelRows);
      job.y = y + segment.first_row + skip * kPanelRows;
      kernels->multiply(job);
    }
  }
};

PackedLinear::PackedLinear() = default;
PackedLinear::PackedLinear(PackedLinear&&) noexcept = default;
PackedLinear& PackedLinear::operator=(PackedLinear&&) noexcept = default;
PackedLinear::~PackedLinear() = default;

PackedLinear PackedLinear::pack(int64_t out, int64_t in, DType source, const RowSource& rows, LinearCompute compute,
                                ThreadPool& pool) {
  return pack_stacked({{out, source, rows}}, in, compute, pool);
}

PackedLinear PackedLinear::pack_stacked(const std::vector<Part>& parts, int64_t in, LinearCompute compute,
                                        ThreadPool& pool) {
  auto impl = std::make_unique<Impl>();
  impl->in = in;
  impl->compute = compute;
  const bool tiles = takes_tiles(compute, in);
  impl->kernels = tiles ? &linear_kernels_amx() : &kernels_for(cpu_isa());
  size_t bytes = 0;
  // Neighbours of one format share a segment if the seam falls on a panel's edge; else the seam would need rows of two
  // sources in one panel.
  struct PartPlace {
    size_t segment;
    int64_t first_panel;
  };
  std::vector<PartPlace> places;
  for (const Part& part : parts) {
    if (part.out < 1 || in < 1 || in % block_elements(part.source) != 0) {
      throw invalid_argument("a weight of " + std::to_string(part.out) + " x " + std::to_string(in) +
                             " is no whole number of " + std::string(dtype_name(part.source)) + " blocks");
    }
    const PanelFormat format = tiles ? PanelFormat::kBF16Pairs : panel_format(part.source, compute);
    const bool joins = !impl->segments.empty() && impl->segments.back().format == format &&
                       impl->segments.back().rows % kPanelRows == 0;
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

size_t PackedLinear::workspace_bytes(int64_t m, int workers) const {
  const size_t scratch = static_cast<size_t>(workers * impl_->scratch_floats()) * sizeof(float) + kAlignmentSlack;
  if (impl_->compute != LinearCompute::kInt8) return impl_->float_bytes(m) + kAlignmentSlack + scratch;
  const int64_t groups = impl_->in / kGroup;
  return static_cast<size_t>(m * (impl_->in + groups * kGroupSideBytes)) + 4 * kAlignmentSlack + scratch;
}

void PackedLinear::forward(const LinearInput& x, float* y, int64_t ldy, int64_t m, bool accumulate,
                           Workspace& workspace, ThreadPool& pool) const {
  if (m < 1) return;
  const Impl& impl = *impl_;
  const WorkspaceScope scope(workspace);
  const bool codes = impl.compute == LinearCompute::kInt8;
  const RowTiles tiles(m, codes ? impl.kernels->code_tile : impl.kernels->float_tile);
  const PackedRows packed = impl.take_rows(m, workspace);
  const auto pack_row = codes ? impl.kernels->pack_codes : impl.kernels->pack_floats;
  const VectorKernels& makers = vector_kernels();
  float* scratch = x.form == LinearInput::Form::kRows
                       ? nullptr
                       : workspace.take<float>(static_cast<size_t>(pool.workers() * impl.scratch_floats()));
  pool.parallel_for_if_large(m, passes_of(x.form) * m * impl.in, [&](int64_t begin, int64_t end, int worker) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t tile = tiles.tile_of(row), first = tiles.begin(tile);
      const float* values = row_of(x, row, impl.in, makers, scratch + worker * impl.scratch_floats());
      pack_row(values, impl.in, first, tiles.begin(tile + 1) - first, row - first, packed);
    }
  });
  // Blocks of tiles whose x stays in a core's cache while the panels pass; more of them where the panels alone can't
  // occupy all workers.
  const int64_t row_bytes = codes ? impl.in + impl.in / kGroup * kGroupSideBytes : impl.in * int64_t{sizeof(float)};
  const int64_t for_cache = (m * row_bytes + kBlockBytes - 1) / kBlockBytes;
  const int64_t for_workers = (kItemsPerWorker * pool.workers() + impl.panels - 1) / impl.panels;
  const int64_t blocks = std::min(tiles.count, std::max(for_cache, m >= kShareRows ? for_workers : 1));
  const PanelJob job{PanelFormat::kF32, nullptr, 0, 0, impl.in, tiles, 0, 0, packed, nullptr, ldy, accumulate};
  pool.parallel_for(blocks * impl.panels, [&](int64_t begin, int64_t end, int) {
    PanelJob run = job;
    for (int64_t block = begin / impl.panels; block * impl.panels < end; ++block) {
      run.first_tile = tiles.count * block / blocks;
      run.last_tile = tiles.count * (block + 1) / blocks;
      const int64_t base = block * impl.panels;
      impl.multiply(run, y, std::max(begin - base, int64_t{0}), std::min(end - base, impl.panels));
    }
  });
}

void PackedLinear::dequantize_row(int64_t row, float* dst) const {
  for (const Segment& segment : impl_->segments) {
    if (row >= segment.first_row + segment.rows) continue;
    const int64_t at = row - segment.first_row;
    const std::byte* panel =
        impl_->pages->data() + segment.offset + at / kPanelRows * panel_bytes(segment.format, impl_->in);
    return unpack_row(segment.format, panel, at % kPanelRows, impl_->in, dst);
  }
  throw std::logic_error("dequantize_row: no such row");
}

}  // namespace quire
