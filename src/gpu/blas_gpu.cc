#include "gpu/blas.h"

#include <cublasLt.h>
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

namespace quire::gpu {
namespace {

constexpr size_t kWorkspaceBytes = size_t{32} << 20;
constexpr int kCandidates = 8;
// Beyond so many shapes all are forgotten: each new number of tokens is a shape.
constexpr size_t kMostPlans = 1 << 14;

// The functions of the library that are used.
struct Library {
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtDestroy) destroy = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) get_heuristic = nullptr;
  decltype(&cublasLtMatmulDescCreate) desc_create = nullptr;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) layout_create = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set = nullptr;
  decltype(&cublasLtGetStatusString) status_string = nullptr;
};

template <class Function>
void find_function(void* file, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(file, name));
  if (function == nullptr) {
    throw Error(ErrorKind::kUnavailable, fmt::format("cuBLASLt has no function {}", name), "device");
  }
}

// The library stays open until the process ends: its own threads and handlers may outlive any one user.
Library open_library() {
  void* file = nullptr;
  std::string tried;
  for (const char* name : {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"}) {
    file = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (file != nullptr) break;
    const char* reason = dlerror();
    tried += fmt::format("{}{} ({})", tried.empty() ? "" : ", ", name, reason != nullptr ? reason : "unknown");
  }
  if (file == nullptr) {
    throw Error(ErrorKind::kUnavailable, "cuBLASLt can't be opened; tried " + tried, "device");
  }
  Library library;
  find_function(file, "cublasLtCreate", library.create);
  find_function(file, "cublasLtDestroy", library.destroy);
  find_function(file, "cublasLtMatmul", library.matmul);
  find_function(file, "cublasLtMatmulAlgoGetHeuristic", library.get_heuristic);
  find_function(file, "cublasLtMatmulDescCreate", library.desc_create);
  find_function(file, "cublasLtMatmulDescDestroy", library.desc_destroy);
  find_function(file, "cublasLtMatmulDescSetAttribute", library.desc_set);
  find_function(file, "cublasLtMatrixLayoutCreate", library.layout_create);
  find_function(file, "cublasLtMatrixLayoutDestroy", library.layout_destroy);
  find_function(file, "cublasLtMatmulPreferenceCreate", library.preference_create);
  find_function(file, "cublasLtMatmulPreferenceDestroy", library.preference_destroy);
  find_function(file, "cublasLtMatmulPreferenceSetAttribute", library.preference_set);
  find_function(file, "cublasLtGetStatusString", library.status_string);
  return library;
}

cudaDataType_t native_type(DType type) {
  switch (type) {
    case DType::kF16:
      return CUDA_R_16F;
    case DType::kBF16:
      return CUDA_R_16BF;
    default:
      return CUDA_R_32F;
  }
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
  cublasLtMatmulDesc_t product = nullptr;
  cublasLtMatrixLayout_t w = nullptr, x = nullptr, y = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
};

}  // namespace

struct Blas::Impl {
  Library library = open_library();
  cublasLtHandle_t handle = nullptr;
  DeviceMemory workspace{kWorkspaceBytes};
  std::unordered_map<Problem, Plan, ProblemHash> plans;

  Impl() { check_status(library.create(&handle), "creation of a handle"); }
  ~Impl() {
    forget_plans();
    if (handle != nullptr) (void)library.destroy(handle);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void check_status(cublasStatus_t status, std::string_view call) const {
    if (status != CUBLAS_STATUS_SUCCESS) {
      throw Error(ErrorKind::kInternal, fmt::format("cuBLASLt: {} failed: {}", call, library.status_string(status)));
    }
  }

  void release(const Plan& plan) const {
    if (plan.product != nullptr) (void)library.desc_destroy(plan.product);
    for (const cublasLtMatrixLayout_t layout : {plan.w, plan.x, plan.y}) {
      if (layout != nullptr) (void)library.layout_destroy(layout);
    }
  }
  void forget_plans() {
    for (const auto& [problem, plan] : plans) release(plan);
    plans.clear();
  }

  void describe(const Problem& p, Plan& plan) const {
    check_status(library.desc_create(&plan.product, CUBLAS_COMPUTE_32F, CUDA_R_32F), "description of a product");
    const cublasOperation_t transposed = CUBLAS_OP_T;
    check_status(library.desc_set(plan.product, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed),
                 "transposition");
    const auto layout = [&](cublasLtMatrixLayout_t& made, DType type, int64_t rows, int64_t columns, int64_t stride) {
      check_status(library.layout_create(&made, native_type(type), static_cast<uint64_t>(rows),
                                         static_cast<uint64_t>(columns), stride),
                   "description of a matrix");
    };
    layout(plan.w, p.type, p.k, p.n, p.k);
    layout(plan.x, p.type, p.k, p.m, p.ldx);
    layout(plan.y, p.y_type, p.n, p.m, p.ldy);
  }

  // Best first by the library's guess.
  std::vector<cublasLtMatmulAlgo_t> candidates(const Problem& p, const Plan& plan, int count) const {
    cublasLtMatmulPreference_t preference = nullptr;
    check_status(library.preference_create(&preference), "preferences");
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      (void)library.preference_set(preference, attribute, &value, sizeof value);
    };
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{kWorkspaceBytes});
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, p.w_alignment);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, p.x_alignment);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, p.y_alignment);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, p.y_alignment);
    // Parts of a sum are added in f32, never in a narrow type of the result.
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    std::array<cublasLtMatmulHeuristicResult_t, kCandidates> results{};
    int found = 0;
    const cublasStatus_t status = library.get_heuristic(handle, plan.product, plan.w, plan.x, plan.y, plan.y,
                                                        preference, count, results.data(), &found);
    (void)library.preference_destroy(preference);
    std::vector<cublasLtMatmulAlgo_t> algorithms;
    for (int i = 0; i < found && status == CUBLAS_STATUS_SUCCESS; ++i) {
      if (results[static_cast<size_t>(i)].state == CUBLAS_STATUS_SUCCESS) {
        algorithms.push_back(results[static_cast<size_t>(i)].algo);
      }
    }
    if (algorithms.empty()) {
      throw Error(ErrorKind::kInternal,
                  fmt::format("cuBLASLt has no algorithm for m {} n {} k {} of {} into {}: {}", p.m, p.n, p.k,
                              dtype_name(p.type), dtype_name(p.y_type), library.status_string(status)));
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

  cublasStatus_t run(const Problem& p, const Plan& plan, const cublasLtMatmulAlgo_t& algorithm, const void* x,
                     const void* w, void* y, const Stream& stream) const {
    const float one = 1.0f, beta = p.accumulate ? 1.0f : 0.0f;
    return library.matmul(handle, plan.product, &one, w, plan.w, x, plan.x, &beta, y, plan.y, y, plan.y, &algorithm,
                          workspace.data(), workspace.bytes(), native_of(stream));
  }

  // Milliseconds of one product, or infinity.
  float time(const Problem& p, const Plan& plan, const cublasLtMatmulAlgo_t& algorithm, const void* x,
             std::span<const void* const> weights, void* y, Stream& stream) const {
    constexpr int kRounds = 2;
    constexpr size_t kLeastCalls = 3;
    if (run(p, plan, algorithm, x, weights.back(), y, stream) != CUBLAS_STATUS_SUCCESS) {
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
  if (device.major < 8) {
    throw Error(ErrorKind::kUnavailable,
                fmt::format("{} has compute capability {}.{}; products in bfloat16 want 8.0", device.name, device.major,
                            device.minor),
                "device");
  }
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
  for (const cublasLtMatmulAlgo_t& algorithm : impl_->candidates(problem, plan, kCandidates)) {
    const float milliseconds = impl_->time(problem, plan, algorithm, x, weights, y, stream);
    if (milliseconds >= best * kEnough) continue;
    best = milliseconds;
    plan.algorithm = algorithm;
  }
}

}  // namespace quire::gpu
