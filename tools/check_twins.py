#!/usr/bin/env python3
"""Checks that each GPU source for one vendor's newest cards has a twin for all others (docs/design.md section 3).

usage: check_twins.py   (from anywhere; prints each source without one and exits 1 if there is one)

A source in a folder gpu/sm90 needs one of the same name in the folder gpu above it.
"""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def main() -> int:
    sources = sorted(path for path in (ROOT / "src").rglob("gpu/sm90/*") if path.suffix in (".cu", ".cc"))
    alone = [path for path in sources if not (path.parent.parent / path.name).exists()]
    for path in alone:
        print(f"{path.relative_to(ROOT)}: no twin {(path.parent.parent / path.name).relative_to(ROOT)}")
    if not alone:
        print(f"{len(sources)} sources of gpu/sm90 folders have their twins")
    return 1 if alone else 0


if __name__ == "__main__":
    sys.exit(main())
