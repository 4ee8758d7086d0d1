#pragma once
// hipBLASLt's names, as blas_gpu.cc calls them. Debian 12 has no headers of it, so what is used is declared here, after
// its public ones: hipblaslt.h of ROCm 6.0 (hipBLASLt 0.6) to 6.2, and of 7 where the same values were seen;
// hipblas-common.h for status, operation and compute type; library_types.h of HIP for element types. The versions
// before, of ROCm 5, number element types differently and are refused.
#include <hip/hip_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "gpu/device.h"
#include "tensor/dtype.h"

namespace quire::gpu::blas {

constexpr const char* kLibrary = "hipBLASLt";
constexpr std::array kFiles = {HIP_VERSION_MAJOR >= 7 ? "libhipblaslt.so.1" : "libhipblaslt.so.0", "libhipblaslt.so"};
constexpr const char* kInstall = "ROCm 6 and newer have it in the package hipblaslt";
constexpr const char* kPrefix = "hipblasLt";  // of its functions

enum class Status : int { kSuccess = 0 };  // hipblasStatus_t
using Handle = void*;
using Product = struct HipProduct*;        // hipblasLtMatmulDesc_t
using Layout = struct HipLayout*;          // hipblasLtMatrixLayout_t
using Preference = struct HipPreference*;  // hipblasLtMatmulPreference_t
struct Algorithm {                         // hipblasLtMatmulAlgo_t
  uint8_t data[16];
  size_t max_workspace_bytes;
};
struct Candidate {  // hipblasLtMatmulHeuristicResult_t
  Algorithm algo;
  size_t workspace_bytes;
  Status state;
  float waves;
  int reserved[4];
};
static_assert(sizeof(Algorithm) == 24 && sizeof(Candidate) == 56);

constexpr Status kDone = Status::kSuccess;
enum class ComputeType : int { kF32 = 2 };                        // hipblasComputeType_t: HIPBLAS_COMPUTE_32F
enum class ElementType : int { kF32 = 0, kF16 = 2, kBF16 = 14 };  // hipDataType: HIP_R_32F, HIP_R_16F, HIP_R_16BF
enum class ProductAttribute : int { kTransposeOfFirst = 0 };      // HIPBLASLT_MATMUL_DESC_TRANSA
enum class PreferenceAttribute : int { kMaxWorkspaceBytes = 1 };  // HIPBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES
enum class Operation : int32_t { kTransposed = 112 };             // hipblasOperation_t: HIPBLAS_OP_T
constexpr ComputeType kComputeF32 = ComputeType::kF32;
constexpr ProductAttribute kTransposeOfFirst = ProductAttribute::kTransposeOfFirst;
constexpr Operation kTransposed = Operation::kTransposed;

inline ElementType type_of(DType type) {
  switch (type) {
    case DType::kF16:
      return ElementType::kF16;
    case DType::kBF16:
      return ElementType::kBF16;
    default:
      return ElementType::kF32;
  }
}

inline const char* text_of(Status status) {
  static constexpr std::array kTexts = {
      "success",        "not initialized", "allocation failed",  "invalid value", "mapping error", "execution failed",
      "internal error", "not supported",   "wrong architecture", "null handle",   "invalid enum",  "unknown error"};
  const auto index = static_cast<size_t>(status);
  return index < kTexts.size() ? kTexts[index] : "a status without a name";
}

struct Functions {
  Status (*create)(Handle*) = nullptr;
  Status (*destroy)(Handle) = nullptr;
  Status (*matmul)(Handle, Product, const void* alpha, const void* a, Layout, const void* b, Layout, const void* beta,
                   const void* c, Layout, void* d, Layout, const Algorithm*, void* workspace, size_t workspace_bytes,
                   hipStream_t) = nullptr;
  Status (*get_heuristic)(Handle, Product, Layout a, Layout b, Layout c, Layout d, Preference, int count, Candidate*,
                          int* found) = nullptr;
  Status (*product_create)(Product*, ComputeType, ElementType scale) = nullptr;
  Status (*product_destroy)(Product) = nullptr;
  Status (*product_set)(Product, ProductAttribute, const void* value, size_t bytes) = nullptr;
  Status (*layout_create)(Layout*, ElementType, uint64_t rows, uint64_t columns, int64_t stride) = nullptr;
  Status (*layout_destroy)(Layout) = nullptr;
  Status (*preference_create)(Preference*) = nullptr;
  Status (*preference_destroy)(Preference) = nullptr;
  Status (*preference_set)(Preference, PreferenceAttribute, const void* value, size_t bytes) = nullptr;
  Status (*get_version)(Handle, int* version) = nullptr;
  const char* (*status_text)(Status) = text_of;  // the library has none
};

// Functions of this library alone: find(name, function).
template <class Find>
void find_others(Functions& functions, Find&& find) {
  find("GetVersion", functions.get_version);
}

// Why products can't be had from it with this program or this version; empty: they can.
inline std::string refusal(const DeviceInfo&) {
  // The library brings the runtime of its own ROCm, whose streams and memory aren't those of another.
  if (HIP_VERSION_MAJOR >= 6) return "";
  return "it wants a program built with ROCm 6 or newer, this one was built with HIP " +
         std::to_string(HIP_VERSION_MAJOR) + "." + std::to_string(HIP_VERSION_MINOR);
}
inline std::string refusal(const Functions& functions, Handle handle) {
  int version = 0;  // major * 100000 + minor * 100 + patch
  if (functions.get_version(handle, &version) == kDone && version >= 600) return "";
  return "its version must be 0.6 or newer, this is " + std::to_string(version / 100000) + "." +
         std::to_string(version / 100 % 1000);
}

// What an algorithm must do with: set(attribute, value). The library asks for no alignment of addresses and no way of
// adding parts of sums.
template <class Set>
void set_preferences(uint64_t workspace_bytes, uint32_t, uint32_t, uint32_t, Set&& set) {
  set(PreferenceAttribute::kMaxWorkspaceBytes, workspace_bytes);
}

}  // namespace quire::gpu::blas
