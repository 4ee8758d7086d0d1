#!/usr/bin/env python3
"""Writes src/text/unicode_tables.cc and src/text/nfc_tables.cc from the Unicode character database.

Needs `pip install unicodedata2==16.0.0`: version 16 is what the regular expressions of Hugging Face tokenizers 0.23
know, and the category of a character decides where text is split.

    tools/make_unicode_tables.py [SRC_TEXT_FOLDER]
"""
import pathlib
import sys
from typing import Callable

import unicodedata2 as ucd

VERSION = "16.0.0"
# The bits of text/unicode.h, CharClass.
UPPER, LOWER, OTHER_LETTER, MARK, NUMBER, PUNCTUATION, SYMBOL, SPACE = (1 << i for i in range(8))
WHITE_SPACE = {*range(0x9, 0xE), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F,
               0x3000}
HANGUL = range(0xAC00, 0xD7A4)


def char_class(code: int) -> int:
    category = ucd.category(chr(code))
    bits = {"Lu": UPPER, "Lt": UPPER, "Ll": LOWER, "Lm": OTHER_LETTER, "Lo": OTHER_LETTER}.get(category)
    if bits is None:
        bits = {"M": MARK, "N": NUMBER, "P": PUNCTUATION, "S": SYMBOL}.get(category[0], 0)
    return bits | (SPACE if code in WHITE_SPACE else 0)


def runs(value_of: Callable[[int], int]) -> list[tuple[int, int]]:
    """(first code, value) of each run of equal values."""
    result: list[tuple[int, int]] = []
    for code in range(0x110000):
        value = value_of(code)
        if not result or result[-1][1] != value:
            result.append((code, value))
    return result


def wrapped(items: list[str]) -> str:
    lines, line = [], "   "
    for item in items:
        if len(line) + len(item) + 2 > 120:
            lines.append(line)
            line = "   "
        line += f" {item},"
    lines.append(line)
    return "\n".join(lines)


def header(note: str) -> str:
    return f"// Made by tools/make_unicode_tables.py from Unicode {VERSION}; do not edit.\n// {note}\n// clang-format off\n"


def class_tables() -> str:
    items = [f"{code << 8 | bits:#x}" for code, bits in runs(char_class)]
    return (header("Each entry starts a run: code << 8 | class.")
            + '#include "text/unicode_tables.h"\n\nnamespace quire {\n\nconst uint32_t kCharClassRuns[] = {\n'
            + wrapped(items) + f"\n}};\nconst size_t kCharClassRunCount = {len(items)};\n\n}}  // namespace quire\n")


def nfc_tables() -> str:
    combining = [f"{code << 8 | value:#x}" for code, value in runs(lambda code: ucd.combining(chr(code)))]
    decompositions = []
    for code in range(0x110000):
        mapping = ucd.decomposition(chr(code))
        if not mapping or mapping.startswith("<") or code in HANGUL:
            continue
        parts = [int(part, 16) for part in mapping.split()]
        second = parts[1] if len(parts) == 2 else 0
        composes = second and ucd.normalize("NFC", chr(parts[0]) + chr(second)) == chr(code)
        decompositions.append(f"{{{code:#x},{parts[0]:#x},{second:#x},{int(bool(composes))}}}")
    return (header("Runs as in unicode_tables.cc: code << 8 | combining class.")
            + '#include "text/unicode_tables.h"\n\nnamespace quire {\n\nconst uint32_t kCombiningRuns[] = {\n'
            + wrapped(combining) + f"\n}};\nconst size_t kCombiningRunCount = {len(combining)};\n\n"
            + "const Decomposition kDecompositions[] = {\n" + wrapped(decompositions)
            + f"\n}};\nconst size_t kDecompositionCount = {len(decompositions)};\n\n}}  // namespace quire\n")


def main() -> None:
    if ucd.unidata_version != VERSION:
        sys.exit(f"unicodedata2 is version {ucd.unidata_version}, expected {VERSION}")
    root = pathlib.Path(__file__).resolve().parent.parent
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else root / "src" / "text"
    (folder / "unicode_tables.cc").write_text(class_tables())
    (folder / "nfc_tables.cc").write_text(nfc_tables())


if __name__ == "__main__":
    main()
