#!/usr/bin/env python3
"""Makes the tokenizer test data of tests/data/text with Hugging Face tokenizers as the reference.

    pip install tokenizers==0.23.3 gguf unicodedata2==16.0.0
    tools/make_tokenizer_golden.py SmolLM2.gguf [CASES.json TOKENIZERS]

Writes
    tokenizer_small.json           a small byte-level tokenizer, cut from the GGUF
    tokenizer_sentencepiece.json   a small SentencePiece-like one
    tokenizer_small_golden.json    their ids of random texts, in several variants
    tokenizer_splits_golden.json   how each known pre-tokenizer pattern cuts random texts
    tokenizer_smollm2_golden.json  ids of random texts by the whole vocabulary of the GGUF
    unicode_forms_golden.json      forms C, D, KC and KD of random texts
and, given a file of cases and the folder of the tokenizers that they name (MODEL/tokenizer.json.xz),
    tokenizer_cases.json           its tokenizer sections, with a simple hash of the ids of long texts
"""
import copy
import hashlib
import json
import lzma
import pathlib
import random
import struct
import sys
from typing import Any, Sequence

import unicodedata2
from gguf import GGUFReader
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

Spec = dict[str, Any]  # a part of a tokenizer.json

DATA = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data" / "text"
FORMS = (normalizers.NFC, normalizers.NFD, normalizers.NFKC, normalizers.NFKD)
CASE_SECTIONS = ("tokenizer", "tokenizer_long", "tokenizer_invalid_utf8", "stream", "stream_cut", "added_tokens")

CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SPACES = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
PATTERNS = {
    "gpt2": [r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"],
    "llama3": [CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*" + SPACES],
    "qwen2": [CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*" + SPACES],
    "deepseek_v3": [
        r"\p{N}{1,3}",
        "[一-龥\u3040-ゟ゠-ヿ]+",
        "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
        "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
    ],
    "o200k": [
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+" + CONTRACTIONS + "?"
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*" + CONTRACTIONS + "?"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + SPACES
    ],
}

WORDS = (
    "the The THE HelloWorld don't DON'T I'll we'VE it's 'S '\u017f na\u00efve caf\u00e9 \u00fcber Stra\u00dfe "
    "\u00c9COLE \u4f60\u597d \u5ba2\u5355\u4ef7 \u3053\u3093\u306b\u3061\u306f \u30ab\u30bf\u30ab\u30ca "
    "\uc548\ub155 \u041f\u0440\u0438\u0432\u0435\u0442 \u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627 "
    "\u0939\u093f\u0928\u094d\u0926\u0940 \U0001f469\U0001f3ff\u200d\U0001f680 \U0001f600 12345 3.14159 0x1F "
    "x\u00b2 \u00bd \u2167 \ufb01 \u01c5 \u02b0 \u00aa f(a,b); {\"k\":[1]} //x */ \u3000 \u00a0 \u2028 \u0085 "
    "\u0000 \u001f \u007f \u200b \ufeff \ufffd \u2581 \u2581\u2581 <0x0A> \u0120 e\u0301 A\u030a "
    "\u1100\u1161\u11a8 \u0301 A\u4e00BC aB"
).split(" ") + [" ", "  ", "   ", "\n", "\r", "\r\n", "\t", "'", "\n\n "]
BLOCKS = (0x80, 0x100, 0x300, 0x370, 0x400, 0x590, 0x900, 0xE00, 0x1100, 0x1E00, 0x2000, 0x2190, 0x3000, 0x4E00, 0xA640,
          0xAC00, 0xF900, 0xFB00, 0xFF00, 0x10000, 0x10400, 0x1D400, 0x1F300, 0x20000)


def random_text(rng: random.Random, extra: Sequence[str] = ()) -> str:
    parts: list[str] = []
    for _ in range(rng.randint(1, 10)):
        kind = rng.random()
        if kind < 0.5:
            parts.append(rng.choice(WORDS))
        elif kind < 0.65:
            parts.append(" ")
        elif kind < 0.7 and extra:
            parts.append(rng.choice(extra))
        elif kind < 0.8:
            parts.append("".join(chr(rng.randint(32, 126)) for _ in range(rng.randint(1, 8))))
        elif kind < 0.92:
            base = rng.choice(BLOCKS)
            parts.append("".join(chr(base + rng.randint(0, 255)) for _ in range(rng.randint(1, 4))))
        else:
            parts.append(rng.choice("aA1 \n\t-=\u4f60\u00e9") * rng.randint(1, 30))
    return "".join(parts)


def rows(value: Any) -> str:
    """JSON text with one line for each item of the outer lists."""
    def dump(item: Any) -> str:
        return json.dumps(item, ensure_ascii=True, separators=(",", ":"))

    if isinstance(value, list):
        return "[\n" + ",\n".join(map(dump, value)) + "\n]"
    items = (f"{dump(key)}:{rows(item) if isinstance(item, list) else dump(item)}" for key, item in value.items())
    return "{\n" + ",\n".join(items) + "\n}"


def write(name: str, value: Any) -> None:
    path = DATA / name
    path.write_text(rows(value) + "\n")
    print(f"{path.name}: {path.stat().st_size} bytes")


def added(token_id: int, content: str, **flags: bool) -> Spec:
    entry: Spec = {"id": token_id, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
                   "normalized": False, "special": True}
    entry.update(flags)
    return entry


def byte_level_json(vocabulary: dict[str, int], merges: list[str], added_tokens: list[Spec], steps: list[Spec]) -> Spec:
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added_tokens, "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps + [byte_level]},
        "post_processor": None, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": vocabulary, "merges": merges},
    }


def split_steps(patterns: list[str]) -> list[Spec]:
    return [{"type": "Split", "pattern": {"Regex": p}, "behavior": "Isolated", "invert": False} for p in patterns]


def smollm_steps() -> list[Spec]:
    return [{"type": "Digits", "individual_digits": True},
            {"type": "Split", "pattern": {"Regex": PATTERNS["gpt2"][0]}, "behavior": "Isolated", "invert": False}]


def read_gguf(path: str) -> tuple[list[str], list[str], list[int]]:
    reader = GGUFReader(path)
    tokens, merges, types = (reader.fields[f"tokenizer.ggml.{name}"].contents()
                             for name in ("tokens", "merges", "token_type"))
    return tokens, merges, types


def full_tokenizer(tokens: list[str], merges: list[str], types: list[int]) -> Spec:
    special = [added(i, t) for i, t in enumerate(tokens) if types[i] == 3]
    return byte_level_json({t: i for i, t in enumerate(tokens)}, merges, special, smollm_steps())


def small_tokenizer(tokens: list[str], merges: list[str]) -> Spec:
    """The specials, the bytes and the first 500 merges, renumbered."""
    alphabet = set(pre_tokenizers.ByteLevel.alphabet())
    merges = merges[:500]
    kept = [t for t in tokens if t in alphabet]
    kept += sorted(alphabet - set(kept))
    for merge in merges:
        joined = merge.replace(" ", "")
        if joined not in kept:
            kept.append(joined)
    special = [added(i, t) for i, t in enumerate(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])]
    vocabulary = {t: i for i, t in enumerate([t["content"] for t in special] + kept)}
    return byte_level_json(vocabulary, merges, special, smollm_steps())


def sentencepiece_tokenizer() -> Spec:
    """A tokenizer of Mistral's kind, trained on the words above."""
    spec: Spec = json.loads(Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>")).to_str())
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    specials = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    words = "the theme there then hello help held world word words work it is in its on one once"
    corpus = ["\u2581" + word for word in words.split()]
    corpus += ["\u2581\u2581\u2581\u2581", "\u2581the\u2581end", "x>\u2581</x>\u2581</"] * 3
    trainer = trainers.BpeTrainer(vocab_size=340, special_tokens=specials, show_progress=False)
    tokenizer.train_from_iterator(corpus * 4, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    model["byte_fallback"], model["fuse_unk"], model["unk_token"] = True, True, "<unk>"
    mark = {"String": "\u2581"}
    spec.update(
        model=model,
        added_tokens=[added(i, t) for i, t in enumerate(["<unk>", "<s>", "</s>"])],
        normalizer={"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "\u2581"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]},
        pre_tokenizer=None,
        post_processor={"type": "TemplateProcessing",
                        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                                   {"Sequence": {"id": "A", "type_id": 0}}],
                        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                        "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
        decoder={"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": mark, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
    )
    return spec


def variants(small: Spec, sentencepiece: Spec) -> dict[str, tuple[str, Spec]]:
    """name -> tokenizer; each is the base with some top-level fields replaced."""
    base = len(small["model"]["vocab"])
    result: dict[str, tuple[str, Spec]] = {"plain": ("small", {})}
    for name, patterns in PATTERNS.items():
        pre = {"type": "Sequence", "pretokenizers": split_steps(patterns) + [small["decoder"]]}
        result[name] = ("small", {"pre_tokenizer": pre})
    result["unknown_pattern"] = ("small", {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": r"\s+|[aeiou]{2,}"}, "behavior": "MergedWithNext", "invert": False},
        {"type": "Split", "pattern": {"String": "e"}, "behavior": "MergedWithPrevious", "invert": False},
        small["decoder"]]}})
    result["prefix_space"] = ("small", {"pre_tokenizer": {
        "type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}})
    result["nfc"] = ("small", {"normalizer": {"type": "NFC"}, "added_tokens": small["added_tokens"] + [
        added(base, "caf\u00e9", normalized=True, special=False), added(base + 1, "A\u030a", special=False)]})
    result["flags"] = ("small", {"added_tokens": small["added_tokens"] + [
        added(base, "[L]", lstrip=True), added(base + 1, "[R]", rstrip=True),
        added(base + 2, "[B]", lstrip=True, rstrip=True), added(base + 3, "[W]", single_word=True),
        added(base + 4, "[W]x"), added(base + 5, "[N]", normalized=True)]})
    result["template"] = ("small", {"post_processor": {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<|im_start|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                   {"SpecialToken": {"id": "<|im_end|>", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {token: {"id": token, "ids": [i], "tokens": [token]}
                           for i, token in ((1, "<|im_start|>"), (2, "<|im_end|>"))}}})
    result["sentencepiece"] = ("sentencepiece", {})
    result["metaspace"] = ("sentencepiece", {"normalizer": None, "pre_tokenizer": {
        "type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": False}})
    result["no_prefix"] = ("sentencepiece", {
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
        "decoder": {"type": "Sequence", "decoders": sentencepiece["decoder"]["decoders"][:3]}})
    return result


def small_golden(small: Spec, sentencepiece: Spec) -> list[Spec]:
    bases = {"small": small, "sentencepiece": sentencepiece}
    groups = []
    for number, (name, (base, replaced)) in enumerate(variants(small, sentencepiece).items()):
        spec = copy.deepcopy(bases[base])
        spec.update(replaced)
        tokenizer = Tokenizer.from_str(json.dumps(spec))
        extra = [t["content"] for t in spec["added_tokens"]] + [" [B] ", "[W]", "\n [R]\t", "x[L]"]
        rng = random.Random(1000 + number)
        texts = ["", " ", "\n"] + [random_text(rng, extra) for _ in range(60)]
        cases = []
        for text in texts:
            ids = tokenizer.encode(text).ids
            case: Spec = {"text": text, "ids": ids}
            decoded = tokenizer.decode(ids, skip_special_tokens=True)
            if decoded != text:
                case["decoded"] = decoded
            cases.append(case)
        groups.append({"name": name, "base": base, "replaced": replaced, "cases": cases})
    return groups


def splits_golden() -> dict[str, list[Any]]:
    groups = {}
    for number, (name, patterns) in enumerate(PATTERNS.items()):
        splitter = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(p), "isolated") for p in patterns])
        rng = random.Random(2000 + number)
        rows = []
        for _ in range(150):
            text = random_text(rng)
            ends = [len(text[:end].encode()) for _, (_, end) in splitter.pre_tokenize_str(text)]
            rows.append([text, ends])
        groups[name] = rows
    return groups


def forms_golden() -> list[list[str]]:
    rng = random.Random(3000)
    marks = [c for c in range(0x300, 0x30000) if unicodedata2.combining(chr(c))]
    decomposed = [c for c in range(0xA0, 0x2FA20) if unicodedata2.decomposition(chr(c)) and
                  not unicodedata2.decomposition(chr(c)).startswith("<")]
    rows = []
    for _ in range(400):
        text = ""
        for _ in range(rng.randint(1, 6)):
            text += rng.choice([
                chr(rng.choice(decomposed)), "aeoAO"[rng.randrange(5)], chr(0xAC00 + rng.randrange(11172)),
                chr(0x1100 + rng.randrange(19)) + chr(0x1161 + rng.randrange(21)),
                chr(0x11A7 + rng.randrange(28)), rng.choice("\ufb01\uff76\uff9e\u33a5\u00b2\ufdfa\u2126\u01c6\u1e9b\u32ff\U0001d504"),
                unicodedata2.normalize("NFD", chr(rng.choice(decomposed)))])
            for _ in range(rng.randint(0, 3)):
                text += chr(rng.choice(marks[:112] if rng.random() < 0.7 else marks))
        rows.append([text] + [form().normalize_str(text) for form in FORMS])
    return rows


def fnv1a(ids: list[int]) -> int:
    value = 0xCBF29CE484222325
    for token in ids:
        value = (value ^ token) * 0x100000001B3 % 2**64
    return value


def cases_golden(path: str, folder: str) -> Spec:
    cases = json.loads(pathlib.Path(path).read_text())
    cases = {section: cases[section] for section in CASE_SECTIONS}
    tokenizers: dict[str, Tokenizer] = {}
    for row in cases["tokenizer_long"]:
        piece, count = row["repeat"]
        for model, expected in row["expected"].items():
            if model not in tokenizers:
                source = lzma.open(pathlib.Path(folder) / model / "tokenizer.json.xz").read().decode()
                tokenizers[model] = Tokenizer.from_str(source)
            ids = tokenizers[model].encode(piece * count, add_special_tokens=False).ids
            digest = hashlib.sha256(struct.pack(f"<{len(ids)}I", *ids)).hexdigest()
            if digest != expected["sha256_le_u32"]:
                sys.exit(f"{row['id']}: {model} gives other ids")
            row["expected"][model] = {"n": len(ids), "fnv1a": fnv1a(ids)}
    return cases


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    tokens, merges, types = read_gguf(sys.argv[1])
    small, sentencepiece = small_tokenizer(tokens, merges), sentencepiece_tokenizer()
    write("tokenizer_small.json", small)
    write("tokenizer_sentencepiece.json", sentencepiece)
    write("tokenizer_small_golden.json", small_golden(small, sentencepiece))
    write("tokenizer_splits_golden.json", splits_golden())
    write("unicode_forms_golden.json", forms_golden())

    full = Tokenizer.from_str(json.dumps(full_tokenizer(tokens, merges, types)))
    rng = random.Random(4000)
    texts = [random_text(rng, ["<|im_start|>", "<|im_end|>user", "<|endoftext|>"]) for _ in range(500)]
    write("tokenizer_smollm2_golden.json", [[t, full.encode(t).ids] for t in texts])

    if len(sys.argv) > 2:
        write("tokenizer_cases.json", cases_golden(sys.argv[2], sys.argv[3]))


if __name__ == "__main__":
    main()
