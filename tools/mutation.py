"""What the tools that plant faults in the sources share (mutate_attention.py, mutate_gpu.py)."""

import argparse
import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent


@dataclasses.dataclass
class Fault:
    """A text in one file, exact but for white space, and what takes its place."""
    name: str
    file: str
    old: str
    new: str


@dataclasses.dataclass
class Suite:
    """The tests that should notice."""
    preset: str
    targets: list[str]
    programs: list[list[str]]  # commands in the tree
    seconds: int  # of one program; a fault that makes it hang is noticed
    environment: dict[str, str] = dataclasses.field(default_factory=dict)


class Failure(Exception):
    """The tool can't do its work: a fault's text is gone, or the tests fail as they are."""


def planted(fault: Fault, tree: pathlib.Path) -> str:
    """The file's text with the fault in it."""
    path = tree / fault.file
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    pattern = r"\s+".join(re.escape(word) for word in fault.old.split())
    found = re.findall(pattern, text)
    if len(found) != 1:
        raise Failure(f"{fault.name}: its text is in {fault.file} {len(found)} times, not once: {fault.old}")
    return text.replace(found[0], fault.new)


def build(suite: Suite, tree: pathlib.Path) -> str:
    """Compiler errors, empty if it builds."""
    command = ["ninja", "-C", f"build/{suite.preset}", f"-j{os.cpu_count()}", *suite.targets]
    result = subprocess.run(command, cwd=tree, capture_output=True, text=True)
    return "" if result.returncode == 0 else result.stdout[-2000:]


def first_failure(suite: Suite, tree: pathlib.Path) -> str:
    """The first test that fails, empty if all pass."""
    for program in suite.programs:
        name = pathlib.Path(program[0]).name
        try:
            result = subprocess.run([*program, "--gtest_fail_fast", "--gtest_brief=1"], cwd=tree, capture_output=True, text=True,
                                    errors="replace", timeout=suite.seconds, env=os.environ | suite.environment)
        except subprocess.TimeoutExpired:
            return f"{name}: hangs"
        if result.returncode != 0:
            failed = re.search(r"\[  FAILED  \] ([\w./]+)", result.stdout)
            reported = re.search(r"^emulator: ([^:;,]+)", result.stderr, re.MULTILINE)
            what = failed.group(1) if failed else f"ends with {result.returncode}"
            return f"{name}: {what}" + (f" ({reported.group(1)})" if reported else "")
    return ""


def try_faults(faults: list[Fault], suite: Suite, tree: pathlib.Path) -> list[str]:
    """Names of the faults that no test notices."""
    subprocess.run(["cmake", "--preset", suite.preset, "-DQUIRE_WERROR=OFF"], cwd=tree, check=True, stdout=subprocess.DEVNULL)
    errors = build(suite, tree)
    if errors:
        raise Failure(f"the tree does not build:\n{errors}")
    failure = first_failure(suite, tree)
    if failure:
        raise Failure(f"a test fails without any fault: {failure}")
    missed = []
    for fault in faults:
        started = time.monotonic()
        path = tree / fault.file
        original = path.read_text(encoding="utf-8")
        path.write_text(planted(fault, tree), encoding="utf-8")
        errors = build(suite, tree)
        if errors:
            raise Failure(f"{fault.name} does not compile:\n{errors}")
        failure = first_failure(suite, tree)
        path.write_text(original, encoding="utf-8")
        if not failure:
            missed.append(fault.name)
        verdict = f"caught by {failure}" if failure else "MISSED"
        print(f"{fault.name:26} {verdict} ({time.monotonic() - started:.0f} s)", flush=True)
    return missed


def main(description: str, all_faults: list[Fault], suite: Suite) -> int:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--list", action="store_true", help="only check that each fault's text is there, and name them")
    parser.add_argument("names", nargs="*", help="faults to plant; all by default")
    options = parser.parse_args()
    unknown = set(options.names) - {f.name for f in all_faults}
    if unknown:
        parser.error(f"no fault is named {', '.join(sorted(unknown))}")
    faults = [f for f in all_faults if not options.names or f.name in options.names]
    # Copies of the tree in other folders share what the compiler made of them.
    os.environ["CCACHE_NOHASHDIR"] = "1"
    try:
        for fault in faults:
            planted(fault, ROOT)
        if options.list:
            print("\n".join(f"{f.name:26} {f.file}" for f in faults))
            return 0
        with tempfile.TemporaryDirectory(prefix="quire-mutate-") as folder:
            os.environ["CCACHE_BASEDIR"] = folder
            tree = pathlib.Path(folder) / "quire"
            shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns("build", ".git", "results", "__pycache__"))
            missed = try_faults(faults, suite, tree)
    except Failure as failure:
        print(failure, file=sys.stderr)
        return 2
    print(f"{len(faults) - len(missed)} of {len(faults)} faults caught")
    return 1 if missed else 0
