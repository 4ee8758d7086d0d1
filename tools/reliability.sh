#!/usr/bin/env bash
# Faults against the built server, one table of figures (docs/reliability.md has the last one). Long; not part of .ci/run.
#   tools/reliability.sh [--quick] [SCENARIO ...]    all of them, or those named; --list shows their names
#   tools/reliability.sh tsan [SECONDS]              64 clients against a server built with the thread sanitizer, 300 s
#   tools/reliability.sh overhead [LLAMA_SERVER]     what serving costs beside computing (bench/serving/overhead.py)
# The tiny model is made with QUIRE_TEST_PYTHON (numpy, gguf); QUIRE_TEST_MODEL names the real one, for what is about text.
. "$(dirname "$0")/common.sh"
cd "$root"
python=${QUIRE_TEST_PYTHON:-python3}
tiny=$root/build/tiny.gguf
[ -f "$tiny" ] || "$python" tests/reliability/make_tiny_model.py "$tiny"

case ${1:-} in
tsan)
  build tsan quire
  exec "$python" tests/reliability/sanitized.py --build build/tsan --tiny-model "$tiny" --seconds "${2:-300}"
  ;;
overhead)
  build release quire quire_faulty_server quire_overhead_client
  exec "$python" bench/serving/overhead.py --model "$tiny" ${2:+--llama-server "$2"}
  ;;
esac
build release quire quire_faulty_server quire_failing_allocator quire_shifted_clock
exec "$python" tests/reliability/run.py --tiny-model "$tiny" "$@"
