#pragma once
// cuBLASLt's names, as blas_gpu.cc calls them.
#include <cublasLt.h>

#include <array>
#include <cstdint>
#include <string>

#include "gpu/device.h"
#include "tensor/dtype.h"

namespace quire::gpu::blas {

constexpr const char* kLibrary = "cuBLASLt";
constexpr std::array kFiles = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"};
constexpr const char* kInstall = "it comes with CUDA 12 or 13";
constexpr const char* kPrefix = "cublasLt";  // of its functions

using Status = cublasStatus_t;
using Handle = cublasLtHandle_t;
using Product = cublasLtMatmulDesc_t;
using Layout = cublasLtMatrixLayout_t;
using Preference = cublasLtMatmulPreference_t;
using Algorithm = cublasLtMatmulAlgo_t;
using Candidate = cublasLtMatmulHeuristicResult_t;

constexpr Status kDone = CUBLAS_STATUS_SUCCESS;
constexpr cublasComputeType_t kComputeF32 = CUBLAS_COMPUTE_32F;
constexpr cublasLtMatmulDescAttributes_t kTransposeOfFirst = CUBLASLT_MATMUL_DESC_TRANSA;
constexpr cublasOperation_t kTransposed = CUBLAS_OP_T;

inline cudaDataType_t type_of(DType type) {
  switch (type) {
    case DType::kF16:
      return CUDA_R_16F;
    case DType::kBF16:
      return CUDA_R_16BF;
    default:
      return CUDA_R_32F;
  }
}

struct Functions {
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtDestroy) destroy = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) get_heuristic = nullptr;
  decltype(&cublasLtMatmulDescCreate) product_create = nullptr;
  decltype(&cublasLtMatmulDescDestroy) product_destroy = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) product_set = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) layout_create = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set = nullptr;
  decltype(&cublasLtGetStatusString) status_text = nullptr;
};

// Functions of this library alone: find(name, function).
template <class Find>
void find_others(Functions& functions, Find&& find) {
  find("GetStatusString", functions.status_text);
}

// Why products can't be had from it on this device, or with this version; empty: they can.
inline std::string refusal(const DeviceInfo& device) {
  if (device.major >= 8) return "";
  return device.name + " has " + device.architecture + "; products in bfloat16 want 8.0";
}
inline std::string refusal(const Functions&, Handle) { return ""; }

// What an algorithm must do with: set(attribute, value).
template <class Set>
void set_preferences(uint64_t workspace_bytes, uint32_t w_alignment, uint32_t x_alignment, uint32_t y_alignment,
                     Set&& set) {
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace_bytes);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, w_alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, x_alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, y_alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, y_alignment);
  // Parts of a sum are added in f32, never in a narrow type of the result.
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
}

}  // namespace quire::gpu::blas
