#!/usr/bin/env python3
"""Checks where the sources name the GPU's runtime and its intrinsics (docs/design.md section 3).

usage: check_gpu_names.py   (from anywhere; prints each name that is out of place and exits 1 if there is one)

 - Calls of CUDA's and HIP's runtime and driver, cuda...(), hip...(), cu...(): in src/gpu/runtime.h alone; what kernels call of it, in
   src/gpu/wave.h; the functions that open HIP's runtime, in src/gpu/runtime_hip.cc.
 - Their headers, and runtime.h's QUIRE_RUNTIME(): in src/gpu alone.
 - What only a device has, __device__, threadIdx, __syncthreads() ...: in folders named gpu, and in tests' *.cu.
 - What is done by the lanes of a wave, __shfl...(): in src/gpu/wave.h alone, since the size of a wave differs.
 - tests/emulator, which makes all of it run on the CPU, names what it likes.
"""

import pathlib
import re
import sys
from collections.abc import Callable

ROOT = pathlib.Path(__file__).resolve().parent.parent
EMULATOR = ROOT / "tests/emulator"  # is a runtime and has what a device has

# Comments and string literals say what they like. Raw strings are not looked for: there are none in GPU sources.
NOT_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)
RUNTIME_CALL = re.compile(r"\b(?:(?:cuda|hip|nvrtc|hiprtc)[A-Z]\w*|cu[A-Z]\w*)\s*(?=\()")
RUNTIME_HEADER = re.compile(r"^\s*#\s*include\s*<((?:cuda|hip|cublas|cooperative_groups|cub/|cccl/|mma)[^>]*)>", re.MULTILINE)
RUNTIME_NAME = re.compile(r"\bQUIRE_RUNTIME(?=\()")
INTRINSIC = re.compile(
    r"\b(?:__(?:global|device|shared|constant|launch_bounds)__|threadIdx|blockIdx|blockDim|gridDim|"
    r"__(?:sync|threadfence|ld[gc]|st[gcw]|cvta|popc|ffs|clz|[fd](?:mul|add|sub|ma|div|rcp|sqrt)_r)\w*(?=\()|"
    r"atomic(?:Add|Min|Max|Or|And|Xor|Exch|CAS|Inc|Dec)(?=\())")
WAVE = re.compile(r"\b__(?:shfl|ballot|any|all|activemask|match|reduce)(?:_\w+)?(?=\()")


def in_gpu_folder(path: pathlib.Path) -> bool:
    return "gpu" in path.parts[:-1] or (path.parts[0] != "src" and path.suffix == ".cu")



RULES: list[tuple[re.Pattern[str], str, Callable[[pathlib.Path], bool]]] = [
    (RUNTIME_CALL, "a call of the runtime outside src/gpu/runtime.h",
     lambda p: str(p) in ("src/gpu/runtime.h", "src/gpu/runtime_hip.cc", "src/gpu/wave.h")),
    (RUNTIME_HEADER, "a header of the runtime outside src/gpu", lambda p: p.parent == pathlib.Path("src/gpu")),
    (RUNTIME_NAME, "a call of the runtime outside src/gpu", lambda p: p.parent == pathlib.Path("src/gpu")),
    (INTRINSIC, "of devices alone, outside folders named gpu", in_gpu_folder),
    (WAVE, "done by a wave's lanes, outside src/gpu/wave.h", lambda p: str(p) == "src/gpu/wave.h"),
]


def misplaced(path: pathlib.Path, text: str) -> list[str]:
    """path: relative to the root."""
    if path.is_relative_to("tests/emulator"):
        return []
    code = NOT_CODE.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)
    return [f"{path}:{code.count(chr(10), 0, match.start(match.lastindex or 0)) + 1}: {match[match.lastindex or 0].strip()}: {what}"
            for pattern, what, allowed in RULES if not allowed(path) for match in pattern.finditer(code)]


def main() -> int:
    paths = [p for folder in ("src", "tests", "bench") for ext in ("h", "cc", "cu") for p in (ROOT / folder).rglob(f"*.{ext}")
             if EMULATOR not in p.parents]
    errors = [e for p in sorted(paths) for e in misplaced(p.relative_to(ROOT), p.read_text(encoding="utf-8"))]
    print("\n".join(errors) if errors else f"{len(paths)} files name the GPU's runtime and intrinsics where they should")
    return 1 if errors or not paths else 0


if __name__ == "__main__":
    sys.exit(main())
