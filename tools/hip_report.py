#!/usr/bin/env python3
"""What the compiler made of the GPU sources for AMD, from the code objects of a build with the preset hip.

usage: hip_report.py BUILD_DIR [FILE.cu...]   (of src/; all by default)

Prints a row for each source and architecture: kernels; matrix instructions (v_mfma), and those with 8-bit floats; registers that did not fit,
vector and scalar ones, over all kernels; the largest scratch memory of a kernel in bytes a lane; the largest LDS of a kernel in bytes, without
what a launch adds. Vector registers that don't fit are kept in scratch memory, and so are arrays with indices that the compiler doesn't know;
scalar ones are kept in lanes of vector registers, which costs little. Exits 1 if something is not as EXPECTED has it.
"""

import concurrent.futures
import dataclasses
import fnmatch
import os
import pathlib
import re
import shutil
import subprocess
import sys

LDS_BYTES = 64 << 10

BOTH = ("gfx90a", "gfx942")
# Source pattern, and the architectures for which it holds. no_scratch: its kernels keep nothing in scratch memory. matrix: there are matrix
# instructions, fp8: some with 8-bit floats. Of LDS no source takes more than there is.
EXPECTED: dict[str, dict[str, tuple[str, ...]]] = {
    "src/kernels/activation/gpu/*.cu": {"no_scratch": BOTH},
    "src/kernels/attention/gpu/*.cu": {"no_scratch": BOTH},
    "src/kernels/attention/gpu/matrix_attention.cu": {"matrix": BOTH},
    "src/kernels/attention/gpu/matrix_attention_8_bit.cu": {"matrix": BOTH, "fp8": ("gfx942",)},
    "src/kernels/embedding/gpu/*.cu": {"no_scratch": BOTH},
    "src/kernels/kv_write/gpu/*.cu": {"no_scratch": BOTH},
    "src/kernels/linear/gpu/small_rows.cu": {"no_scratch": BOTH, "matrix": BOTH},
    "src/kernels/norm/gpu/*.cu": {"no_scratch": BOTH},
    "src/kernels/rope/gpu/*.cu": {"no_scratch": BOTH},
    "src/kernels/sample/gpu/*.cu": {"no_scratch": BOTH},
    "src/kernels/step_input/gpu/*.cu": {"no_scratch": BOTH},
}


@dataclasses.dataclass
class Kernel:
    name: str = ""
    vector_spills: int = 0
    scalar_spills: int = 0
    scratch_bytes: int = 0
    lds_bytes: int = 0


@dataclasses.dataclass
class Code:
    source: str
    architecture: str
    kernels: list[Kernel]
    matrix: int = 0
    matrix_fp8: int = 0


FIELDS = {
    "name": "name",
    "vgpr_spill_count": "vector_spills",
    "sgpr_spill_count": "scalar_spills",
    "private_segment_fixed_size": "scratch_bytes",
    "group_segment_fixed_size": "lds_bytes",
}


def tool(name: str) -> str:
    path = shutil.which(f"{name}-19") or shutil.which(name) or shutil.which(name, path="/opt/rocm/llvm/bin")
    if path is None:
        sys.exit(f"{name} is not there: it comes with LLVM")
    return path


def output_of(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def kernels_of(notes: str) -> list[Kernel]:
    """The kernels of llvm-readelf --notes: a list in YAML, whose items' own fields are four characters in and those of their arguments more."""
    kernels: list[Kernel] = []
    inside = False
    for line in notes.splitlines():
        if line.startswith("amdhsa."):
            inside = line.startswith("amdhsa.kernels:")
            continue
        if not inside:
            continue
        if line.startswith("  - "):
            kernels.append(Kernel())
        match = re.match(r"^(?:  - |    )\.(\w+): +(\S+)$", line)
        field = FIELDS.get(match[1]) if match else None
        if field == "name":
            kernels[-1].name = match[2]
        elif field is not None:
            setattr(kernels[-1], field, int(match[2]))
    return kernels


def read(source: str, architecture: str, path: pathlib.Path) -> Code:
    code = Code(source, architecture, kernels_of(output_of(tool("llvm-readelf"), "--notes", str(path))))
    for name in re.findall(r"\bv_mfma\w+", output_of(tool("llvm-objdump"), "-d", "--no-show-raw-insn", str(path))):
        code.matrix += 1
        code.matrix_fp8 += "fp8" in name or "bf8" in name
    return code


def problems_of(code: Code, expected: dict[str, dict[str, tuple[str, ...]]]) -> list[str]:
    problems = []
    for pattern, holds in expected.items():
        if not fnmatch.fnmatch(code.source, pattern):
            continue
        scratch = [k for k in code.kernels if k.scratch_bytes or k.vector_spills]
        if scratch and code.architecture in holds.get("no_scratch", ()):
            worst = max(scratch, key=lambda k: (k.scratch_bytes, k.vector_spills))
            problems.append(f"{len(scratch)} of {len(code.kernels)} kernels use scratch memory, most of all {worst.name}: "
                            f"{worst.scratch_bytes} bytes a lane, {worst.vector_spills} vector registers")
        if code.architecture in holds.get("matrix", ()) and code.matrix == 0:
            problems.append("no matrix instruction")
        if code.architecture in holds.get("fp8", ()) and code.matrix_fp8 == 0:
            problems.append("no matrix instruction with 8-bit floats")
    problems += [f"{k.name} takes {k.lds_bytes} bytes of LDS, {LDS_BYTES} are there" for k in code.kernels if k.lds_bytes > LDS_BYTES]
    return problems


def without_code(codes: list[Code], expected: dict[str, dict[str, tuple[str, ...]]]) -> list[str]:
    """Patterns that no source is like: it has another name by now, or does not compile."""
    return [f"{pattern}: there is no code of it" for pattern in expected if not any(fnmatch.fnmatch(code.source, pattern) for code in codes)]


def main() -> int:
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1]) / "hip"
    objects = sorted((folder / "src").rglob("*.cu.*.co"))
    names = [re.fullmatch(r"(.*\.cu)\.(\w+)\.co", str(path.relative_to(folder))) for path in objects]
    wanted = [(m[1], m[2], path) for m, path in zip(names, objects) if m and (len(sys.argv) == 2 or m[1] in sys.argv[2:])]
    wanted = [entry for entry in wanted if pathlib.Path(entry[0]).exists()]  # of sources that are gone
    with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        codes = list(pool.map(lambda entry: read(*entry), wanted))
    row = "{:<48} {:<7} {:>7} {:>5} {:>4} {:>12} {:>8} {:>6}"
    print(row.format("source", "arch", "kernels", "mfma", "fp8", "spills (v+s)", "scratch", "LDS"))
    problems = []
    for code in codes:
        spills = f"{sum(k.vector_spills for k in code.kernels)}+{sum(k.scalar_spills for k in code.kernels)}"
        print(row.format(code.source.removeprefix("src/"), code.architecture, len(code.kernels), code.matrix, code.matrix_fp8, spills,
                         max((k.scratch_bytes for k in code.kernels), default=0), max((k.lds_bytes for k in code.kernels), default=0)))
        problems += [f"{code.source} for {code.architecture}: {problem}" for problem in problems_of(code, EXPECTED)]
    if len(sys.argv) == 2:
        problems += without_code(codes, EXPECTED)
    if problems:
        names = subprocess.run([tool("llvm-cxxfilt")], input="\n".join(problems), capture_output=True, text=True, check=True)
        print(names.stdout, file=sys.stderr)
    return 1 if problems or not codes else 0


if __name__ == "__main__":
    sys.exit(main())
