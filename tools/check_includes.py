#!/usr/bin/env python3
"""Checks that includes between the folders of src/ point down only, in the order of docs/design.md section 3.

usage: check_includes.py   (from anywhere; prints each include that points up and exits 1 if there is one)
"""

import pathlib
import re
import sys

# A folder may include itself and every folder of an earlier tier; folders of one tier don't see each other.
TIERS = [
    ["base"],
    ["client"],
    ["tensor"],
    ["gpu"],
    ["distributed"],
    ["checkpoint", "text"],
    ["kernels"],
    ["kvcache"],
    ["attention"],
    ["model", "sample"],
    ["engine"],
    ["server", "bench"],
    ["cli"],
]


def main() -> int:
    src = pathlib.Path(__file__).resolve().parent.parent / "src"
    tier = {folder: i for i, folders in enumerate(TIERS) for folder in folders}
    errors = [f"src/{p.name}: not in the order of design.md section 3" for p in src.iterdir() if p.is_dir() and p.name not in tier]
    checked = 0
    for path in sorted([*src.rglob("*.h"), *src.rglob("*.cc"), *src.rglob("*.cu")]):
        own = path.relative_to(src).parts[0]
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            match = re.match(r'\s*#\s*include\s+"([^"/]+)/', line)
            if not match:
                continue
            other = match.group(1)
            checked += 1
            if other not in tier:
                errors.append(f"{path.relative_to(src)}:{number}: {other}/ is no folder of src/")
            elif own in tier and other != own and tier[other] >= tier[own]:
                errors.append(f"{path.relative_to(src)}:{number}: {own} may not include {other}")
    print("\n".join(errors) if errors else f"{checked} includes point down")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
