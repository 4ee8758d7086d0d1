#!/usr/bin/env bash
# A CUDA compiler without CUDA installed: what quire's GPU sources need, from PyPI (NVIDIA's licence), kept in the cache. Prints its
# folder, for cmake -DCMAKE_CUDA_COMPILER=FOLDER/bin/nvcc -DCUDAToolkit_ROOT=FOLDER.
. "$(dirname "$0")/common.sh"

packages=(nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-cuda-runtime==13.0.96
  nvidia-cuda-cccl==13.0.85 nvidia-cublas==13.1.0.3)
folder=$cache/cuda-13.0

if [ ! -x "$folder/bin/nvcc" ]; then
  say "fetching the CUDA compiler (600 MB, of which 270 MB are kept)"
  mkdir -p "$cache"
  work=$(mktemp -d -p "$cache")
  trap 'rm -rf "$work"' EXIT
  # Of cuBLAS only the headers are needed: the library itself is opened at run time.
  for package in "${packages[@]}"; do
    python3 -m pip download -q --disable-pip-version-check --no-deps --only-binary :all: -d "$work/wheel" "$package" >&2
    python3 - "$work" << 'PYTHON'
import pathlib, sys, zipfile
work = pathlib.Path(sys.argv[1])
for wheel in (work / "wheel").glob("*.whl"):
    with zipfile.ZipFile(wheel) as file:
        for name in file.namelist():
            if name.startswith("nvidia/cu13/") and not (wheel.name.startswith("nvidia_cublas") and "/lib/" in name):
                file.extract(name, work)
    wheel.unlink()
PYTHON
  done
  mv "$work/nvidia/cu13" "$work/cuda"
  chmod -R u+w "$work/cuda"
  find "$work/cuda/bin" "$work/cuda/nvvm/bin" -type f -exec chmod +x {} +
  ln -s lib "$work/cuda/lib64"
  rm -rf "$folder"
  mv "$work/cuda" "$folder"
fi
echo "$folder"
