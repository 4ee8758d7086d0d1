#!/usr/bin/env python3
"""Writes src/text/jinja/case_tables.cc: case mappings and character classes of Python's str, from the Python that runs this."""
import unicodedata
from collections.abc import Callable, Iterator

RANGE = 0x110000
SURROGATES = range(0xD800, 0xE000)


def characters() -> Iterator[int]:
    return (c for c in range(RANGE) if c not in SURROGATES)


def runs(mapping: dict[int, int]) -> list[tuple[int, int, int, int]]:
    """(first, last, stride, delta) for one-to-one mappings, neighbours joined."""
    out: list[tuple[int, int, int, int]] = []
    for code, target in sorted(mapping.items()):
        delta = target - code
        if out:
            first, last, stride, d = out[-1]
            gap = code - last
            if d == delta and (gap == stride or (first == last and gap in (1, 2))):
                out[-1] = (first, code, gap, delta)
                continue
        out.append((code, code, 1, delta))
    return out


def toggles(predicate: Callable[[str], bool]) -> list[int]:
    out, state = [], False
    for code in range(RANGE):
        now = code not in SURROGATES and predicate(chr(code))
        if now != state:
            out.append(code)
            state = now
    return out


def emit_numbers(out: list[str], name: str, numbers: list[int]) -> None:
    out.append(f"const uint32_t {name}[] = {{")
    line = "   "
    for number in numbers:
        piece = f" {number},"
        if len(line) + len(piece) > 118:
            out.append(line)
            line = "   "
        line += piece
    out += [line, "};", f"const size_t {name}Count = {len(numbers)};", ""]


def main() -> None:
    out = ["// Made by tools/make_case_tables.py (Unicode %s); do not edit." % unicodedata.unidata_version,
           '#include "text/jinja/case_tables.h"', "", "namespace quire::jinja {", "", "// clang-format off"]
    for name, convert in (("Upper", str.upper), ("Lower", str.lower), ("Title", str.title)):
        single, special = {}, []
        for code in characters():
            text = chr(code)
            target = convert(text)
            if name == "Title" and target == text.upper():
                continue  # the upper case serves
            if len(target) > 1:
                special.append((code, target))
            elif target != text or name == "Title":
                single[code] = ord(target)
        table = runs(single)
        out.append(f"const CaseRun k{name}Runs[] = {{")
        out += ["    {%d, %d, %d, %d}," % run for run in table]
        out += ["};", f"const size_t k{name}RunCount = {len(table)};", ""]
        out.append(f"const CaseExpansion k{name}Expansions[] = {{")
        out += ["    {%d, {%s}}," % (code, ", ".join(str(ord(c)) for c in target.ljust(3, "\0")))
                for code, target in special]
        out += ["};", f"const size_t k{name}ExpansionCount = {len(special)};", ""]
    emit_numbers(out, "kPrintableToggles", toggles(str.isprintable))
    emit_numbers(out, "kDigitToggles", toggles(str.isdigit))
    out += ["// clang-format on", "", "}  // namespace quire::jinja", ""]
    with open("src/text/jinja/case_tables.cc", "w", encoding="utf-8") as file:
        file.write("\n".join(out))


if __name__ == "__main__":
    main()
