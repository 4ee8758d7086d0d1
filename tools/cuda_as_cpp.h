#pragma once
// Included before a .cu source where tools parse it as C++ of the host (tools/check_metadata.py): declares what nvcc
// has built in, without bodies. Add what a kernel uses and a tool does not find.
#include <cuda_runtime.h>
#include <math.h>

#include <type_traits>

#define __launch_bounds__(...)

struct BuiltinIndex {
  unsigned x, y, z;
};
extern const BuiltinIndex threadIdx, blockIdx, blockDim, gridDim;

template <class... Parameters>
cudaError_t cudaFuncSetAttribute(void (*kernel)(Parameters...), cudaFuncAttribute attribute, int value);

template <class A, class B>
constexpr std::common_type_t<A, B> min(A a, B b);
template <class A, class B>
constexpr std::common_type_t<A, B> max(A a, B b);

void __syncthreads();
int __syncthreads_or(int predicate);
int __syncthreads_and(int predicate);
int __syncthreads_count(int predicate);
void __syncwarp(unsigned mask = ~0u);
void __threadfence();
template <class T>
T __shfl_sync(unsigned mask, T value, int lane, int width = 32);
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32);
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned distance, int width = 32);
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned distance, int width = 32);
unsigned __ballot_sync(unsigned mask, int predicate);
int __any_sync(unsigned mask, int predicate);
int __popc(unsigned value);
int __ffs(int value);
int __clz(int value);
template <class T>
T __ldg(const T* from);
template <class T>
T __ldcg(const T* from);
template <class T>
T __ldcs(const T* from);
template <class T>
void __stcs(T* to, T value);
template <class T, class V>
T atomicAdd(T* to, V value);
template <class T, class V>
T atomicMax(T* to, V value);
template <class T, class V>
T atomicMin(T* to, V value);
template <class T, class V>
T atomicOr(T* to, V value);
template <class T, class V>
T atomicExch(T* to, V value);
template <class T, class V>
T atomicCAS(T* to, V expected, V value);
unsigned atomicInc(unsigned* to, unsigned limit);
size_t __cvta_generic_to_shared(const void* pointer);

float __uint_as_float(unsigned bits);
unsigned __float_as_uint(float value);
float __int_as_float(int bits);
int __float_as_int(float value);
float __expf(float x);
float __logf(float x);
float __log2f(float x);
float __fdividef(float x, float y);
float __frcp_rn(float x);
float __fmul_rn(float x, float y);
float __fadd_rn(float x, float y);
float __fsub_rn(float x, float y);
float __fmaf_rn(float x, float y, float z);
double __dmul_rn(double x, double y);
double __dadd_rn(double x, double y);
float rsqrtf(float x);
unsigned __umulhi(unsigned a, unsigned b);
int __float2int_rn(float x);
