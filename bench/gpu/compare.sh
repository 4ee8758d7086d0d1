#!/bin/sh
# quire on this machine's GPU beside vLLM and FlashAttention 3, as one markdown table; under 150 s once it is built.
# usage: bench/gpu/compare.sh [options of compare.py]
# QUIRE: the program; without it, it is built. QUIRE_LLAMA_CONFIG: config.json of Llama-3.1-8B, if the Hugging Face cache
# has none. cuBLASLt comes from LD_LIBRARY_PATH, /usr/local/cuda or Python's nvidia packages.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)

if [ -z "${QUIRE:-}" ]; then
  (cd "$root" && cmake --preset cuda >/dev/null && cmake --build build/cuda --target quire >/dev/null)
  QUIRE=$root/build/cuda/quire
fi

if [ -n "${QUIRE_LLAMA_CONFIG:-}" ]; then
  HF_HOME=$(mktemp -d)
  export HF_HOME
  trap 'rm -rf "$HF_HOME"' EXIT
  cache=$HF_HOME/hub/models--meta-llama--Llama-3.1-8B
  mkdir -p "$cache/refs" "$cache/snapshots/local"
  cp "$QUIRE_LLAMA_CONFIG" "$cache/snapshots/local/config.json"
  printf local >"$cache/refs/main"
fi

packages=$(python3 -c 'import site, glob
print(":".join(p for s in site.getsitepackages() for p in glob.glob(s + "/nvidia/cu1*/lib")))' 2>/dev/null || true)
export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:-}:/usr/local/cuda/lib64:$packages"

python3 "$here/compare.py" "$QUIRE" "$@"
