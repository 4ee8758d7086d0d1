#pragma once
// The instruction set that CPU kernels run on: the best that cpuid reports, or what QUIRE_CPU_ISA forces.
#include <string_view>

namespace quire {

enum class CpuIsa { kScalar, kAvx2, kAvx512 };  // kAvx2: with FMA, F16C; kAvx512: F, BW, DQ, VL, VNNI

CpuIsa cpu_isa();  // decided once; QUIRE_CPU_ISA (scalar, avx2, avx512) that the machine lacks: Error(kInvalidArgument)
std::string_view cpu_isa_name(CpuIsa isa);
bool cpu_has(CpuIsa isa);

}  // namespace quire
