#!/usr/bin/env python3
"""Writes src/text/char_tables.cc and src/text/nfc_tables.cc: what Hugging Face tokenizers knows about characters beyond the
classes of regular expressions.

    pip install tokenizers==0.23.3 unicodedata2==16.0.0 regex
    tools/make_char_tables.py [SRC_TEXT_FOLDER]

Its parts know different versions of Unicode (8 for BERT's punctuation, 12 for normalization forms, 16 elsewhere), and which
character is in which set decides the ids. So each table is what the library itself says of each character.
"""
import pathlib
import sys
from typing import Callable, Iterable

import regex
import unicodedata2 as ucd
from tokenizers import normalizers, pre_tokenizers

VERSION = "16.0.0"
CODES = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]
HANGUL = range(0xAC00, 0xD7A4)
# src/text/graphemes.cc, enum Break, in this order; everything else is 0.
BREAKS = ("Control", "CR", "LF", "Extend", "ZWJ", "SpacingMark", "Prepend", "L", "V", "T", "LV", "LVT", "Regional_Indicator")
PICTOGRAPHIC = len(BREAKS) + 1


def wrapped(items: Iterable[str]) -> str:
    lines, line = [], "   "
    for item in items:
        if len(line) + len(item) + 2 > 120:
            lines.append(line)
            line = "   "
        line += f" {item},"
    return "\n".join([*lines, line])


def array(kind: str, name: str, items: list[str]) -> str:
    return f"const {kind} {name}[] = {{\n{wrapped(items)}\n}};\nconst size_t {name}Count = {len(items)};\n\n"


def runs(value_of: Callable[[int], int]) -> list[tuple[int, int]]:
    """(first code, value) of each run of equal values, from 0 at 0."""
    result, last = [], 0
    for code in CODES:
        value = value_of(code)
        if value != last:
            result.append((code, value))
            last = value
    return result


def toggles(name: str, has: Callable[[int], bool]) -> str:
    return array("uint32_t", name, [hex(code) for code, _ in runs(lambda code: int(has(code)))])


def pieces(pre_tokenizer: pre_tokenizers.PreTokenizer) -> Callable[[int], int]:
    return lambda code: len(pre_tokenizer.pre_tokenize_str(f"a{chr(code)}b"))


def sets() -> str:
    options = {"clean_text": False, "handle_chinese_chars": False, "strip_accents": False, "lowercase": False}
    clean = normalizers.BertNormalizer(**{**options, "clean_text": True})
    bare = normalizers.BertNormalizer(**{**options, "strip_accents": True})
    marks = normalizers.StripAccents()
    words, punctuation = pieces(pre_tokenizers.Whitespace()), pieces(pre_tokenizers.Punctuation())
    digits = pieces(pre_tokenizers.Digits(individual_digits=True))
    return (toggles("kWordToggles", lambda c: words(c) == 1) +
            toggles("kPunctuationToggles", lambda c: punctuation(c) == 3) +
            toggles("kNumericToggles", lambda c: digits(c) == 3) +
            toggles("kBertControlToggles", lambda c: clean.normalize_str(chr(c)) == "") +
            toggles("kBertAccentToggles", lambda c: bare.normalize_str(chr(c)) == "") +
            toggles("kAccentToggles", lambda c: marks.normalize_str(chr(c)) == ""))


def scripts() -> str:
    """Numbers the scripts in the order in which their first characters come. 0 goes with any: no cut before it."""
    splitter = pre_tokenizers.UnicodeScripts()

    def cuts(text: str) -> set[int]:
        return {begin for _, (begin, _) in splitter.pre_tokenize_str(text)}

    # Characters that neither a digit nor a letter before them is cut from.
    after_one, after_letter = (cuts("".join(f"{before}{chr(code)}" for code in CODES)) for before in "1a")
    any_script = {code for i, code in enumerate(CODES) if 2 * i + 1 not in after_one and 2 * i + 1 not in after_letter}
    sure = [code for code in CODES if code not in any_script]
    begins = cuts("".join(map(chr, sure)))
    first_of: list[int] = []  # a character of each script
    number, current = {}, 0
    for i, code in enumerate(sure):
        if i in begins:
            same = [n for n, other in enumerate(first_of, 1) if len(cuts(chr(other) + chr(code))) == 1]
            if not same:
                first_of.append(code)
            current = same[0] if same else len(first_of)
        number[code] = current
    assert len(first_of) < 256
    return array("uint32_t", "kScriptRuns", [hex(code << 8 | value) for code, value in runs(lambda c: number.get(c, 0))])


def lowercase() -> str:
    """Runs of first, last, stride, delta; the one character that becomes two is in the code."""
    lower, result = normalizers.Lowercase(), []
    for code in CODES:
        text = lower.normalize_str(chr(code))
        if len(text) != 1:
            assert code == 0x130, hex(code)
            continue
        delta = ord(text) - code
        if not delta:
            continue
        last = result[-1] if result else None
        if last and last[3] == delta and (code - last[1] == last[2] or (last[0] == last[1] and code - last[1] <= 2)):
            last[2], last[1] = code - last[1], code
        else:
            result.append([code, code, 1, delta])
    return array("CaseRun", "kLowerRuns", [f"{{{a:#x},{b:#x},{s},{d}}}" for a, b, s, d in result])


def compatibility() -> str:
    """Full compatibility decompositions where they are not the canonical ones, in one pool."""
    canonical, compatible = normalizers.NFD(), normalizers.NFKD()
    rows, pool = [], []
    for code in CODES:
        text = compatible.normalize_str(chr(code))
        if text == canonical.normalize_str(chr(code)):
            continue
        rows.append(f"{{{code:#x},{len(pool)},{len(text)}}}")
        pool += [hex(ord(c)) for c in text]
    return array("Compatibility", "kCompatibility", rows) + array("uint32_t", "kCompatibilityPool", pool)


def breaks() -> str:
    patterns = [regex.compile(rf"\p{{GCB={name}}}") for name in BREAKS]
    pictographic = regex.compile(r"\p{Extended_Pictographic}")

    def of(code: int) -> int:
        character = chr(code)
        # regex may know a newer version, the library does not; of unassigned characters some control and are pictographs.
        known = ucd.category(character) != "Cn"
        for value, pattern in enumerate(patterns, 1):
            if pattern.match(character) and (known or BREAKS[value - 1] == "Control"):
                return value
        return PICTOGRAPHIC if pictographic.match(character) else 0

    return array("uint32_t", "kBreakRuns", [hex(code << 8 | value) for code, value in runs(of)])


def combining_class(code: int) -> int:
    """Unicode's, 0 if the library doesn't know it: it doesn't put the mark in order then."""
    value = ucd.combining(chr(code))
    if value == 0:
        return 0
    low, high = "\u0334", "\u0345"  # classes 1 and 240
    text = low + high + chr(code) if value < 240 else chr(code) + low
    if value == 1:
        text = high + chr(code)
    return value if normalizers.NFD().normalize_str("a" + text) != "a" + text else 0


def canonical() -> str:
    combining = [f"{code << 8 | value:#x}" for code, value in [(0, 0)] + runs(combining_class)]
    form_d, decompositions = normalizers.NFD(), []
    for code in CODES:
        mapping = ucd.decomposition(chr(code))
        if not mapping or mapping.startswith("<") or code in HANGUL or form_d.normalize_str(chr(code)) == chr(code):
            continue
        parts = [int(part, 16) for part in mapping.split()]
        second = parts[1] if len(parts) == 2 else 0
        composes = second and normalizers.NFC().normalize_str(chr(parts[0]) + chr(second)) == chr(code)
        decompositions.append(f"{{{code:#x},{parts[0]:#x},{second:#x},{int(bool(composes))}}}")
    return (array("uint32_t", "kCombiningRuns", combining) + array("Decomposition", "kDecompositions", decompositions))


def source(note: str, header: str, body: str) -> str:
    return (f"// Made by tools/make_char_tables.py; do not edit.\n// {note}\n// clang-format off\n#include \"{header}\"\n\n"
            f"namespace quire {{\n\n{body}}}  // namespace quire\n")


def main() -> None:
    if ucd.unidata_version != VERSION:
        sys.exit(f"unicodedata2 is version {ucd.unidata_version}, expected {VERSION}")
    root = pathlib.Path(__file__).resolve().parent.parent
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else root / "src" / "text"
    (folder / "char_tables.cc").write_text(source(
        "Toggles: code points at which membership changes, from \"no\" at 0. Runs: code << 8 | value.",
        "text/char_tables.h", sets() + scripts() + lowercase() + compatibility() + breaks()))
    (folder / "nfc_tables.cc").write_text(source(
        "Runs: code << 8 | combining class.", "text/unicode_tables.h", canonical()))


if __name__ == "__main__":
    main()
