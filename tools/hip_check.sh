#!/usr/bin/env bash
# Compiles the portable GPU sources for AMD's gfx90a and gfx942 (preset hip) and prints what came out: tools/hip_report.py. Nothing runs on
# AMD hardware: this says what the compiler made, no more.
# usage: hip_check.sh [FILE.cu...]   (all by default; exits 1 if one does not compile or is not as hip_report.py expects)
. "$(dirname "$0")/common.sh"

files=()
for file in "$@"; do files+=("$(realpath --relative-to="$root" "$file")"); done
# With a ROCm of its own the machine has the compiler and the headers.
[ -d /opt/rocm/include/hip ] || install_packages "${build_packages[@]}" "${hip_packages[@]}"
cd "$root"
[ -f build/hip/build.ninja ] || cmake --preset hip > /dev/null
targets=(hip_code)
if [ ${#files[@]} -gt 0 ]; then
  targets=()
  for file in "${files[@]}"; do targets+=("hip/$file.gfx90a.co" "hip/$file.gfx942.co"); done
fi
compiled=0
ninja -C build/hip -k 0 "${targets[@]}" > build/hip/hip_code.log 2>&1 || compiled=1
[ $compiled = 0 ] || grep -E 'error|^FAILED' build/hip/hip_code.log >&2 || cat build/hip/hip_code.log >&2
python3 tools/hip_report.py build/hip "${files[@]}"
exit $compiled
