#!/usr/bin/env bash
# Compiles the portable GPU sources for AMD's gfx90a and gfx942 with clang-19 and Debian's HIP 5.2, and prints for each what came out: matrix
# instructions, spilled registers, LDS bytes. Nothing runs on AMD hardware: this says that they compile, no more.
# usage: hip_check.sh [FILE.cu...]   (all of src/ but gpu/sm90/ by default; exits 1 if one does not compile)
. "$(dirname "$0")/common.sh"

install_packages libamdhip64-dev rocm-device-libs clang-19 lld-19 llvm-19
cd "$root"
out=build/hip
mkdir -p $out/bitcode
# The device libraries of 5.2 stop at gfx940: the constant for gfx942 is made from its.
libraries=/usr/lib/x86_64-linux-gnu/amdgcn/bitcode
ln -sf $libraries/*.bc $out/bitcode/
[ -e $out/bitcode/oclc_isa_version_942.bc ] || llvm-dis-19 $libraries/oclc_isa_version_940.bc -o - |
  sed 's/i32 9400/i32 9402/' | llvm-as-19 -o $out/bitcode/oclc_isa_version_942.bc

launcher=()
[ -z "$(command -v ccache)" ] || launcher=(ccache)
flags=(-x hip -D__HIP_PLATFORM_AMD__ -std=c++20 -O3 -DNDEBUG -Isrc --rocm-path=/usr "--rocm-device-lib-path=$out/bitcode" -Wno-unused-result)
[ $# -gt 0 ] || mapfile -t files < <(git ls-files 'src/*.cu' | grep -v /sm90/)
[ $# -eq 0 ] || files=("$@")
failed=0
printf '%-48s %-7s %6s %6s %7s\n' source arch mfma spills lds
for file in "${files[@]}"; do
  name=$(tr / _ <<< "${file#src/}")
  for arch in gfx90a gfx942; do
    object=$out/$name.$arch.co
    if ! "${launcher[@]}" clang++-19 "${flags[@]}" --offload-arch=$arch --cuda-device-only --no-gpu-bundle-output -c "$file" \
      -o "$object" 2> "$object.log"; then
      failed=1
      printf '%-48s %-7s does not compile: %s\n' "$file" $arch "$(grep -m1 'error' "$object.log")"
      continue
    fi
    mfma=$(llvm-objdump-19 -d "$object" | grep -c v_mfma || true)
    read -r spills lds < <(llvm-readelf-19 --notes "$object" | awk '$1 ~ /vgpr_spill_count/ { spills += $2 }
      $1 ~ /group_segment_fixed_size/ && $2 > lds { lds = $2 } END { print spills + 0, lds + 0 }')
    printf '%-48s %-7s %6s %6s %7s\n' "$file" $arch "$mfma" "$spills" "$lds"
  done
done
exit $failed
