#include "gpu/blas.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <unordered_map>
#include <vector>

#include "gpu/memory.h"
#include "gpu/runtime.h"
#if defined(__HIP_PLATFORM_AMD__)
#include "gpu/blas_hipblaslt.h"
#else
#include "gpu/blas_cublaslt.h"
#endif

namespace quire::gpu {
namespace {

constexpr size_t kWorkspaceBytes = size_t{32} << 20;
constexpr int kCandidates = 8;
// Beyond so many shapes all are forgotten: each new number of tokens is a shape.
constexpr size_t kMostPlans = 1 << 14;

Error unavailable(std::string_view reason) {
  return {ErrorKind::kUnavailable, fmt::format("no products on the GPU: {}: {}", blas::kLibrary, reason), "device"};
}

// The library stays open until the process ends: its own threads and handlers may outlive any one user.
blas::Functions open_library() {
  void* file = nullptr;
  std::string tried;
  for (const char* name : blas::kFiles) {
    file = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (file != nullptr) break;
    const char* reason = dlerror();
    tried += fmt::format("{}{} ({})", tried.empty() ? "" : ", ", name, reason != nullptr ? reason : "unknown");
  }
  if (file == nullptr) throw unavailable(fmt::format("it can't be opened; tried {}; {}", tried, blas::kInstall));
  const auto find = [&](const char* name, auto& function) {
    const std::string symbol = std::string(blas::kPrefix) + name;
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(file, symbol.c_str()));
    if (function == nullptr) throw unavailable(fmt::format("it has no function {}", symbol));
  };
  blas::Functions functions;
  find("Create", functions.create);
  find("Destroy", functions.destroy);
  find("Matmul", functions.matmul);
  find("MatmulAlgoGetHeuristic", functions.get_heuristic);
  find("MatmulDescCreate", functions.product_create);
  find("MatmulDescDestroy", functions.product_destroy);
  find("MatmulDescSetAttribute", functions.product_set);
  find("MatrixLayoutCreate", functions.layout_create);
  find("MatrixLayoutDestroy", functions.layout_destroy);
  find("MatmulPreferenceCreate", functions.preference_create);
  find("MatmulPreferenceDestroy", functions.preference_destroy);
  find("MatmulPreferenceSetAttribute", functions.preference_set);
  blas::find_others(functions, find);
  return functions;
}

// The largest power of 2 that divides the address, up to what the library asks about.
uint32_t alignment_of(const void* address) {
  const auto bits = reinterpret_cast<uintptr_t>(address) | 256;
  return static_cast<uint32_t>(bits & (~bits + 1));
}

// What an algorithm is chosen for.
struct Problem {
  int64_t m, n, k, ldx, ldy;
  uint32_t x_alignment, w_alignment, y_alignment;
  DType type, y_type;
  bool accumulate;
  bool operator==(const Problem&) const = default;
};

struct ProblemHash {
  size_t operator()(const Problem& p) const {
    uint64_t hash = 0;
    for (const int64_t field :
         {p.m, p.n, p.k, p.ldx, p.ldy,
          int64_t{p.x_alignment} | int64_t{p.w_alignment} << 20 | int64_t{p.y_alignment} << 40,
          static_cast<int64_t>(p.type) | static_cast<int64_t>(p.y_type) << 8 | int64_t{p.accumulate} << 16}) {
      hash = std::rotl((hash ^ static_cast<uint64_t>(field)) * 0x9e3779b97f4a7c15u, 29);
    }
    return hash;
  }
};

// The library's description of a problem, and the algorithm of choice. In the library's terms, where columns are
// contiguous: D [n, m] = A^T B with A = w [k, n], B = x [k, m].
struct Plan {
  blas::Product product = nullptr;
  blas::Layout w = nullptr, x = nullptr, y = nullptr;
  blas::Algorithm algorithm{};
};

}  // namespace

struct Blas::Impl {
  blas::Functions library = open_library();
  blas::Handle handle = nullptr;
  DeviceMemory workspace{kWorkspaceBytes};
  std::unordered_map<Problem, Plan, ProblemHash> plans;

  Impl() {
    check_status(library.create(&handle), "creation of a handle");
    if (const std::string reason = blas::refusal(library, handle); !reason.empty()) {
      (void)library.destroy(handle);
      throw unavailable(reason);
    }
  }
  ~Impl() {
    forget_plans();
    (void)library.destroy(handle);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void check_status(blas::Status status, std::string_view call) const {
    if (status != blas::kDone) {
      throw Error(ErrorKind::kInternal,
                  fmt::format("{}: {} failed: {}", blas::kLibrary, call, library.status_text(status)));
    }
  }

  void release(const Plan& plan) const {
    if (plan.product != nullptr) (void)library.product_destroy(plan.product);
    for (const blas::Layout layout : {plan.w, plan.x, plan.y}) {
      if (layout != nullptr) (void)library.layout_destroy(layout);
    }
  }
  void forget_plans() {
    for (const auto& [problem, plan] : plans) release(plan);
    plans.clear();
  }

  void describe(const Problem& p, Plan& plan) const {
    check_status(library.product_create(&plan.product, blas::kComputeF32, blas::type_of(DType::kF32)),
                 "description of a product");
    constexpr auto kTransposed = blas::kTransposed;
    check_status(library.product_set(plan.product, blas::kTransposeOfFirst, &kTransposed, sizeof kTransposed),
                 "transposition");
    const auto layout = [&](blas::Layout& made, DType type, int64_t rows, int64_t columns, int64_t stride) {
      check_status(library.layout_create(&made, blas::type_of(type), static_cast<uint64_t>(rows),
                                         static_cast<uint64_t>(columns), stride),
                   "description of a matrix");
    };
    layout(plan.w, p.type, p.k, p.n, p.k);
    layout(plan.x, p.type, p.k, p.m, p.ldx);
    layout(plan.y, p.y_type, p.n, p.m, p.ldy);
  }

  // Best first by the library's guess.
  std::vector<blas::Algorithm> candidates(const Problem& p, const Plan& plan, int count) const {
    blas::Preference preference = nullptr;
    check_status(library.preference_create(&preference), "preferences");
    blas::set_preferences(kWorkspaceBytes, p.w_alignment, p.x_alignment, p.y_alignment,
                          [&](auto attribute, const auto& value) {
                            (void)library.preference_set(preference, attribute, &value, sizeof value);
                          });
    std::array<blas::Candidate, kCandidates> results{};
    int found = 0;
    const blas::Status status = library.get_heuristic(handle, plan.product, plan.w, plan.x, plan.y, plan.y, preference,
                                                      count, results.data(), &found);
    (void)library.preference_destroy(preference);
    std::vector<blas::Algorithm> algorithms;
    for (int i = 0; i < found && status == blas::kDone; ++i) {
      if (results[static_cast<size_t>(i)].state == blas::kDone) {
        algorithms.push_back(results[static_cast<size_t>(i)].algo);
      }
    }
    if (algorithms.empty()) {
      throw Error(ErrorKind::kInternal,
                  fmt::format("{} has no algorithm for m {} n {} k {} of {} into {}: {}", blas::kLibrary, p.m, p.n, p.k,
                              dtype_name(p.type), dtype_name(p.y_type), library.status_text(status)));
    }
    return algorithms;
  }

  Plan& plan_of(const Problem& problem) {
    if (const auto known = plans.find(problem); known != plans.end()) return known->second;
    if (plans.size() >= kMostPlans) forget_plans();
    Plan plan;
    try {
      describe(problem, plan);
      plan.algorithm = candidates(problem, plan, 1).front();
    } catch (...) {
      release(plan);
      throw;
    }
    return plans.emplace(problem, plan).first->second;
  }

  blas::Status run(const Problem& p, const Plan& plan, const blas::Algorithm& algorithm, const void* x, const void* w,
                   void* y, const Stream& stream) const {
    const float one = 1.0f, beta = p.accumulate ? 1.0f : 0.0f;
    return library.matmul(handle, plan.product, &one, w, plan.w, x, plan.x, &beta, y, plan.y, y, plan.y, &algorithm,
                          workspace.data(), workspace.bytes(), native_of(stream));
  }

  // Milliseconds of one product, or infinity.
  float time(const Problem& p, const Plan& plan, const blas::Algorithm& algorithm, const void* x,
             std::span<const void* const> weights, void* y, Stream& stream) const {
    constexpr int kRounds = 2;
    constexpr size_t kLeastCalls = 3;
    if (run(p, plan, algorithm, x, weights.back(), y, stream) != blas::kDone) {
      return std::numeric_limits<float>::infinity();
    }
    const Event begin, end;
    float best = std::numeric_limits<float>::infinity();
    for (int round = 0; round < kRounds; ++round) {
      const size_t calls = std::max(weights.size(), kLeastCalls);
      stream.record(begin);
      for (size_t i = 0; i < calls; ++i) (void)run(p, plan, algorithm, x, weights[i % weights.size()], y, stream);
      stream.record(end);
      stream.wait(end, "tuning of a product");
      best = std::min(best, milliseconds_between(begin, end) / static_cast<float>(calls));
    }
    return best;
  }
};

Blas::Blas(const DeviceInfo& device) {
  if (const std::string reason = blas::refusal(device); !reason.empty()) throw unavailable(reason);
  impl_ = std::make_unique<Impl>();
}

Blas::~Blas() = default;

void Blas::matmul(const void* x, int64_t ldx, const void* w, void* y, int64_t ldy, int64_t m, int64_t n, int64_t k,
                  DType type, DType y_type, bool accumulate, Stream& stream) {
  if (m == 0 || n == 0) return;
  const Problem problem{m, n, k, ldx, ldy, alignment_of(x), alignment_of(w), alignment_of(y), type, y_type, accumulate};
  const Plan& plan = impl_->plan_of(problem);
  impl_->check_status(impl_->run(problem, plan, plan.algorithm, x, w, y, stream), "product");
  stream.count_launch();
}

void Blas::tune(const void* x, int64_t ldx, std::span<const void* const> weights, void* y, int64_t ldy, int64_t m,
                int64_t n, int64_t k, DType type, DType y_type, bool accumulate, Stream& stream) {
  if (m == 0 || n == 0 || weights.empty()) return;
  uint32_t w_alignment = 256;
  for (const void* w : weights) w_alignment = std::min(w_alignment, alignment_of(w));
  const Problem problem{m, n, k, ldx, ldy, alignment_of(x), w_alignment, alignment_of(y), type, y_type, accumulate};
  Plan& plan = impl_->plan_of(problem);
  // The first is the one that is in use; another must be better by more than times vary.
  constexpr float kEnough = 0.98f;
  float best = std::numeric_limits<float>::infinity();
  for (const blas::Algorithm& algorithm : impl_->candidates(problem, plan, kCandidates)) {
    const float milliseconds = impl_->time(problem, plan, algorithm, x, weights, y, stream);
    if (milliseconds >= best * kEnough) continue;
    best = milliseconds;
    plan.algorithm = algorithm;
  }
}

}  // namespace quire::gpu
