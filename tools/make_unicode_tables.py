#!/usr/bin/env python3
"""Writes src/text/unicode_tables.cc from the Unicode character database.

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


def main() -> None:
    if ucd.unidata_version != VERSION:
        sys.exit(f"unicodedata2 is version {ucd.unidata_version}, expected {VERSION}")
    root = pathlib.Path(__file__).resolve().parent.parent
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else root / "src" / "text"
    (folder / "unicode_tables.cc").write_text(class_tables())


if __name__ == "__main__":
    main()
