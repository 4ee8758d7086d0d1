#include "base/cpu_isa.h"

#include <cstdlib>
#include <string>

#include "base/error.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace quire {
namespace {

struct Choice {
  std::string_view name;
  CpuIsa isa;
  bool (*has)();
  bool avxvnni = false, amx = false;
};

constexpr Choice kChoices[] = {{"amx", CpuIsa::kAvx512, cpu_has_amx, false, true},
                               {"avx512", CpuIsa::kAvx512, [] { return cpu_has(CpuIsa::kAvx512); }},
                               {"avxvnni", CpuIsa::kAvx2, cpu_has_avxvnni, true},
                               {"avx2", CpuIsa::kAvx2, [] { return cpu_has(CpuIsa::kAvx2); }},
                               {"scalar", CpuIsa::kScalar, [] { return true; }}};

const Choice& best() {
  const Choice* choice = kChoices;
  while (!choice->has()) ++choice;
  return *choice;
}

const Choice& decide() {
  const char* forced = std::getenv("QUIRE_CPU_ISA");
  if (forced == nullptr || *forced == '\0') return best();
  std::string names;
  for (const Choice& choice : kChoices) {
    if (choice.name == forced) {
      if (choice.has()) return choice;
      throw invalid_argument(
          "QUIRE_CPU_ISA=" + std::string(forced) + ": this machine has no more than " + std::string(best().name),
          "QUIRE_CPU_ISA");
    }
    names += (names.empty() ? "" : ", ") + std::string(choice.name);
  }
  throw invalid_argument("QUIRE_CPU_ISA=" + std::string(forced) + ": not one of " + names, "QUIRE_CPU_ISA");
}

const Choice& decided() {
  static const Choice& choice = decide();
  return choice;
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

bool cpu_has_avxvnni() {
#if defined(__x86_64__)
  // Older compilers have no name for it.
  constexpr unsigned kLeaf = 7, kSubleaf = 1, kBit = 4;  // of eax
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return cpu_has(CpuIsa::kAvx2) && __get_cpuid_count(kLeaf, kSubleaf, &eax, &ebx, &ecx, &edx) != 0 &&
         (eax >> kBit & 1) != 0;
#else
  return false;
#endif
}

bool cpu_has_amx() {
#if defined(__x86_64__) && defined(__linux__)
  constexpr unsigned kLeaf = 7, kBF16Bit = 22, kTileBit = 24;  // of edx
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (!cpu_has(CpuIsa::kAvx512) || __get_cpuid_count(kLeaf, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  if ((edx >> kBF16Bit & 1) == 0 || (edx >> kTileBit & 1) == 0) return false;
  // Linux keeps the tiles' 8 KiB for processes that ask for them (its documentation: arch/x86/xstate).
  constexpr int kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
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

CpuIsa cpu_isa() { return decided().isa; }
bool cpu_avxvnni() { return decided().avxvnni; }
bool cpu_amx() { return decided().amx; }
std::string_view cpu_kernels_name() { return decided().name; }

}  // namespace quire
