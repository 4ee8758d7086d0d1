#!/usr/bin/env python3
"""Runs clang-tidy on every source file of src/ that has changed since it last passed.

usage: tidy.py BUILD_DIR [PATH...]   (built with Ninja, with a compile_commands.json; only files under PATHs)

A file has changed if it, a header of the project that it includes, its compiler flags, .clang-tidy or clang-tidy have.
*.cu are left out: Debian 12's clang-tidy doesn't parse the headers of a CUDA that new.
"""

import concurrent.futures
import functools
import hashlib
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "quire" / "tidy"


def output_of(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout


def project_files(names: list[str], folder: pathlib.Path) -> list[pathlib.Path]:
    paths = {pathlib.Path(os.path.normpath(folder / name)) for name in names}
    return sorted(p for p in paths if p.is_relative_to(ROOT) and p.exists())


def recorded_dependencies(build: pathlib.Path) -> dict[str, list[pathlib.Path]]:
    """What Ninja knows of each object file that is up to date: the project's own files that it was made of."""
    result = {}
    for block in output_of(["ninja", "-C", str(build), "-t", "deps"]).split("\n\n"):
        head, *names = block.strip().splitlines() or [""]
        if head.endswith("(VALID)"):
            result[head.split(": #deps")[0]] = project_files([n.strip() for n in names], build)
    return result


def object_file(entry: dict[str, str]) -> str:
    command = entry["command"].split()
    return command[command.index("-o") + 1]


def scanned_dependencies(entry: dict[str, str]) -> list[pathlib.Path]:
    """The same from the compiler."""
    command = [a for a in entry["command"].split() if pathlib.Path(a).name != "ccache" and a != "-c"]
    at = command.index("-o")
    del command[at : at + 2]
    out = subprocess.run([*command, "-MM"], capture_output=True, text=True, check=True, cwd=entry["directory"]).stdout
    return project_files(out.replace("\\\n", " ").split(":", 1)[1].split(), pathlib.Path(entry["directory"]))


@functools.cache
def content(path: pathlib.Path) -> bytes:
    return hashlib.sha256(path.read_bytes()).digest()


def check(
    entry: dict[str, str], files: list[pathlib.Path] | None, build: pathlib.Path, version: str
) -> tuple[str, str]:
    """The file, and what there is to complain about."""
    source = pathlib.Path(entry["file"])
    digest = hashlib.sha256(f"{version}{entry['command'].replace(str(ROOT), '')}".encode())
    includes = scanned_dependencies(entry) if files is None else files
    for path in sorted({source, ROOT / ".clang-tidy", *includes}):
        digest.update(str(path.relative_to(ROOT)).encode() + content(path))
    stamp = CACHE / digest.hexdigest()
    if stamp.exists():
        return str(source), ""
    # Kernel launches have no body but for nvcc; GCC sees to unused parameters elsewhere.
    extra = ["--extra-arg=-Wno-unused-parameter"] if source.name.endswith("_gpu.cc") else []
    result = subprocess.run(
        ["clang-tidy", "--quiet", *extra, "-p", str(build), str(source)], capture_output=True, text=True, cwd=ROOT
    )
    if result.returncode == 0:
        stamp.touch()
        return str(source), ""
    return str(source), result.stdout or result.stderr


def main() -> int:
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    build = ROOT / sys.argv[1]
    wanted = [pathlib.Path(p).resolve() for p in sys.argv[2:]] or [ROOT / "src"]
    CACHE.mkdir(parents=True, exist_ok=True)
    version = output_of(["clang-tidy", "--version"])
    recorded = recorded_dependencies(build)
    entries = [
        e
        for e in json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
        if any(pathlib.Path(e["file"]).is_relative_to(path) for path in wanted) and not e["file"].endswith(".cu")
    ]
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        for source, complaint in pool.map(lambda e: check(e, recorded.get(object_file(e)), build, version), entries):
            if complaint:
                failed += 1
                print(f"{source}\n{complaint}", flush=True)
    print(f"clang-tidy: {len(entries) - failed} of {len(entries)} files clean")
    return 1 if failed or not entries else 0


if __name__ == "__main__":
    sys.exit(main())
