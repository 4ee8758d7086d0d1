#!/usr/bin/env bash
# Builds the libFuzzer programs (asan + ubsan) and runs each for a while from its seeds: tools/fuzz.sh [SECONDS [NAME...]]
# An abort, a leak, an input that takes over 1 s or 512 MB ends it with an error; the input is then in build/fuzz/findings.
. "$(dirname "$0")/common.sh"
cd "$root"
seconds=${1:-10}
shift || true
names=("$@")
if [ ${#names[@]} -eq 0 ]; then
  for source in tests/fuzz/*_fuzz.cc; do names+=("$(basename "$source" _fuzz.cc)"); done
fi
install_packages "${build_packages[@]}" clang-19 libclang-rt-19-dev llvm-19
say "building (fuzz)"
build fuzz "${names[@]/%/_fuzz}"
findings=build/fuzz/findings
mkdir -p "$findings"
export UBSAN_OPTIONS=print_stacktrace=1
limits=(-timeout=1 -rss_limit_mb=512)
for name in "${names[@]}"; do
  say "fuzzing $name for $seconds s"
  program=build/fuzz/tests/fuzz/${name}_fuzz
  corpus=build/fuzz/corpus/$name
  log=build/fuzz/$name.log
  mkdir -p "$corpus"
  options=("${limits[@]}" -max_total_time="$seconds" -max_len=16384 -artifact_prefix="$findings/$name-" -print_final_stats=1)
  [ -f "tests/fuzz/seeds/$name.dict" ] && options+=("-dict=tests/fuzz/seeds/$name.dict")
  rm -f "$findings/$name"-timeout-*
  if ! "$program" "$corpus" "tests/fuzz/seeds/$name" "${options[@]}" > "$log" 2>&1; then
    # The clock goes on while other programs run: an input is slow only if it is so again by itself.
    slow=("$findings/$name"-timeout-*)
    if [ ! -f "${slow[0]}" ] || ! "$program" "${limits[@]}" "${slow[@]}" >> "$log" 2>&1; then
      tail -40 "$log" >&2
      exit 1
    fi
  fi
  grep -E 'number_of_executed_units|peak_rss' "$log" >&2
done
