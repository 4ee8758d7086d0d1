#pragma once
// The instruction set that CPU kernels run on: the best that cpuid reports, or what QUIRE_CPU_ISA forces (scalar, avx2,
// avxvnni, avx512, amx).
#include <string_view>

namespace quire {

enum class CpuIsa { kScalar, kAvx2, kAvx512 };  // kAvx2: with FMA, F16C; kAvx512: F, BW, DQ, VL, VNNI

CpuIsa cpu_isa();  // decided once; a QUIRE_CPU_ISA that the machine lacks: Error(kInvalidArgument)
std::string_view cpu_isa_name(CpuIsa isa);
bool cpu_has(CpuIsa isa);

// With kAvx2, products of codes in linear layers have AVX-VNNI too: whether to use it, and whether the machine has it.
bool cpu_avxvnni();
bool cpu_has_avxvnni();
// With kAvx512, products of bfloat16 weights have AMX tiles too, if the system lets this process have them.
bool cpu_amx();
bool cpu_has_amx();
std::string_view cpu_kernels_name();  // of all that is used, a word of QUIRE_CPU_ISA

}  // namespace quire
