#include "base/cpu_isa.h"

#include <cstdlib>
#include <string>

#include "base/error.h"

namespace quire {
namespace {

CpuIsa best() {
  return cpu_has(CpuIsa::kAvx512) ? CpuIsa::kAvx512 : cpu_has(CpuIsa::kAvx2) ? CpuIsa::kAvx2 : CpuIsa::kScalar;
}

CpuIsa decide() {
  const char* forced = std::getenv("QUIRE_CPU_ISA");
  if (forced == nullptr || *forced == '\0') return best();
  for (const CpuIsa isa : {CpuIsa::kScalar, CpuIsa::kAvx2, CpuIsa::kAvx512}) {
    if (cpu_isa_name(isa) != forced) continue;
    if (cpu_has(isa)) return isa;
    throw invalid_argument(
        "QUIRE_CPU_ISA=" + std::string(forced) + ": this machine has no more than " + std::string(cpu_isa_name(best())),
        "QUIRE_CPU_ISA");
  }
  throw invalid_argument("QUIRE_CPU_ISA=" + std::string(forced) + ": not one of scalar, avx2, avx512", "QUIRE_CPU_ISA");
}

}  // namespace

bool cpu_has(CpuIsa isa) {
  if (isa == CpuIsa::kScalar) return true;
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
  if (isa == CpuIsa::kAvx2) return avx2;
  return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vnni");
#else
  return false;
#endif
}

std::string_view cpu_isa_name(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kScalar:
      return "scalar";
    case CpuIsa::kAvx2:
      return "avx2";
    case CpuIsa::kAvx512:
      return "avx512";
  }
  return "?";
}

CpuIsa cpu_isa() {
  static const CpuIsa isa = decide();
  return isa;
}

}  // namespace quire
