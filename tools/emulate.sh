#!/usr/bin/env bash
# The GPU's kernels on the CPU (docs/emulator.md): builds the tests for CUDA's path with waves of 32 lanes and for HIP's with 64, runs
# both and prints what they did.
# usage: emulate.sh [--gtest_filter=...]   (and other options of the test programs)
. "$(dirname "$0")/common.sh"

install_packages "${build_packages[@]}" clang-19 libclang-rt-19-dev llvm-19
build emulator emulated32_test emulated64_test
# Every so many of the tests' cases, and as many of the attention's random batches.
export QUIRE_TEST_SHARE=${QUIRE_TEST_SHARE:-7} QUIRE_TEST_BATCHES=${QUIRE_TEST_BATCHES:-100}
export ASAN_SYMBOLIZER_PATH=${ASAN_SYMBOLIZER_PATH:-/usr/bin/llvm-symbolizer-19}
# Without those that measure time or have too much to do for the emulator.
tests='-*Timings*:*LargeVocabularies*:GpuAttention.Long*:*SmallRows.RowsDepend*'
failed=0
for wave in 32 64; do
  say "waves of $wave lanes"
  log=$root/build/emulator/emulated$wave.log
  begin=$SECONDS
  if "$root/build/emulator/tests/emulator/emulated${wave}_test" --gtest_brief=1 "--gtest_filter=$tests" "$@" > "$log" 2>&1; then
    grep -E '^\[  PASSED  \]|^\[  SKIPPED \]|^worst share' "$log"
    echo "waves of $wave lanes: $((SECONDS - begin)) s"
  else
    failed=1
    tail -n 40 "$log"
    echo "waves of $wave lanes FAILED, see $log"
  fi
done
exit $failed
