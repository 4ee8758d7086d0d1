#!/usr/bin/env python3
"""Runs clang-tidy on every source file of src/, skipping files whose text and headers are as they were when they last passed.

usage: tidy.py BUILD_DIR   (with a compile_commands.json in it)
"""

import concurrent.futures
import hashlib
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "quire" / "tidy"


def project_files(command: list[str], source: str) -> list[pathlib.Path]:
    """The project's own files that `source` includes, itself among them."""
    compiler = [a for a in command if pathlib.Path(a).name != "ccache"]
    kept = []
    skip = False
    for argument in compiler:
        if skip:
            skip = False
        elif argument == "-o":
            skip = True
        elif argument != "-c":
            kept.append(argument)
    out = subprocess.run([*kept, "-MM"], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    names = out.replace("\\\n", " ").split(":", 1)[1].split()
    return sorted({p for n in names if (p := pathlib.Path(n).resolve()).is_relative_to(ROOT)} | {pathlib.Path(source)})


def check(entry: dict[str, str], build: str) -> tuple[str, int, str]:
    source = entry["file"]
    digest = hashlib.sha256((ROOT / ".clang-tidy").read_bytes())
    for path in project_files(entry["command"].split(), source):
        digest.update(str(path.relative_to(ROOT)).encode() + path.read_bytes())
    stamp = CACHE / digest.hexdigest()
    if stamp.exists():
        return source, 0, ""
    result = subprocess.run(["clang-tidy", "--quiet", "-p", build, source], capture_output=True, text=True, cwd=ROOT)
    if result.returncode == 0:
        stamp.touch()
    return source, result.returncode, result.stdout


def main() -> int:
    build = sys.argv[1]
    CACHE.mkdir(parents=True, exist_ok=True)
    entries = [
        e
        for e in json.loads((ROOT / build / "compile_commands.json").read_text(encoding="utf-8"))
        if pathlib.Path(e["file"]).is_relative_to(ROOT / "src")
    ]
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        for source, code, output in pool.map(lambda e: check(e, build), entries):
            if code != 0:
                failed += 1
                print(f"{source}\n{output}")
    print(f"clang-tidy: {len(entries) - failed} of {len(entries)} files clean")
    return 1 if failed or not entries else 0


if __name__ == "__main__":
    sys.exit(main())
