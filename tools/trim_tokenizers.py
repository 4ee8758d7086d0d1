#!/usr/bin/env python3
"""Cuts large tokenizers down to what the tests need, and makes the sample of random texts that the tests compare.

    pip install tokenizers==0.23.3
    tools/trim_tokenizers.py CASES.json TOKENIZERS

TOKENIZERS holds MODEL/tokenizer.json.xz for each model that the cases name. Writes tests/data/text/tokenizers/MODEL.json, which
gives the same ids for the texts of the cases and of the sample: tokens that are no part of any of these texts are left out, and
merges of such tokens. Also writes tests/data/text/tokenizer_random_golden.json: for these and for the small tokenizers of
tests/data/text (tools/make_tokenizer_samples.py) random texts with the number and hash of their ids and the hash of the text that
decoding gives.
"""
import json
import lzma
import pathlib
import random
import sys
from typing import Any

from tokenizers import Tokenizer

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from fuzz_tokenizers import random_text  # noqa: E402

Spec = dict[str, Any]
DATA = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data" / "text"
SMALL = ("bert", "bert_cased", "t5", "xlmr", "gpt2", "small", "sentencepiece", "clip", "scripts", "spelled")
TEXTS_OF_LARGE, TEXTS_OF_SMALL = 100, 140


def byte_alphabet() -> dict[int, str]:
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {**{b: chr(b) for b in printable}, **{b: chr(0x100 + i) for i, b in enumerate(others)}}


def fnv1a(values: Any) -> str:
    value = 0xCBF29CE484222325
    for item in values:
        value = (value ^ item) * 0x100000001B3 % 2**64
    return f"{value:016x}"


def case_texts(cases: Spec, model: str) -> list[str]:
    texts = [row["text"] for row in cases["tokenizer"]]
    texts += [row["replaced_text"] for row in cases["tokenizer_invalid_utf8"]]
    texts += [row["repeat"][0] * min(row["repeat"][1], 200) for row in cases["tokenizer_long"]]
    texts += [row["text"] for row in cases["stream"]]
    for group in cases["added_tokens"]:
        if group["base"] == model:
            texts += [case["text"] for case in group["cases"]]
            texts += [token["content"] for token in group["append_to_added_tokens"]]
    return texts


def case_ids(cases: Spec, model: str) -> set[int]:
    ids: set[int] = set()
    for section in ("stream", "stream_cut"):
        for row in cases[section]:
            ids |= set(row["per_model"][model]["ids"])
    return ids


def trim(spec: Spec, texts: list[str], ids: set[int]) -> Spec:
    tokenizer = Tokenizer.from_str(json.dumps(spec))
    normalized = [tokenizer.normalizer.normalize_str(text) if tokenizer.normalizer else text for text in texts]
    if '"ByteLevel"' in json.dumps(spec["pre_tokenizer"]):
        alphabet = byte_alphabet()
        normalized = ["".join(alphabet[byte] for byte in text.encode()) for text in normalized]
        always = set(alphabet.values())
    else:
        always = {f"<0x{byte:02X}>" for byte in range(256)} | {"<unk>"}
    everything = "\uffff".join(normalized)  # U+2581 may come before any part, after an added token
    vocabulary = {token: number for token, number in spec["model"]["vocab"].items()
                  if token in always or number in ids or token.removeprefix("\u2581") in everything}

    def halves(merge: Any) -> list[str]:
        return merge.split(" ") if isinstance(merge, str) else merge

    merges = [merge for merge in spec["model"]["merges"]
              if all(part in vocabulary for part in (*halves(merge), "".join(halves(merge))))]
    template = json.dumps(spec["post_processor"])
    raw = "\uffff".join(texts)
    added = [token for token in spec["added_tokens"]
             if token["content"] in raw or token["id"] in ids or json.dumps(token["content"]) in template]
    vocabulary |= {token["content"]: token["id"] for token in added if token["content"] in spec["model"]["vocab"]}
    return {**spec, "added_tokens": added, "model": {**spec["model"], "vocab": vocabulary, "merges": merges}}


def sample(tokenizer: Tokenizer, texts: list[str]) -> list[list[Any]]:
    rows = []
    for text in texts:
        ids = tokenizer.encode(text).ids
        rows.append([text, len(ids), fnv1a(ids), fnv1a(tokenizer.decode(ids).encode())])
    return rows


def write(path: pathlib.Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text + "\n")
    print(f"{path.relative_to(DATA)}: {path.stat().st_size} bytes")


def random_texts(seed: int, tokenizer: Tokenizer, count: int) -> list[str]:
    rng = random.Random(seed)
    added = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
    return [random_text(rng, added[:40]) for _ in range(count)]


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    cases, folder = json.loads(pathlib.Path(sys.argv[1]).read_text()), pathlib.Path(sys.argv[2])
    golden: dict[str, list[Any]] = {}
    for number, model in enumerate(cases["meta"]["tokenizer_json_sha256"]):
        spec = json.loads(lzma.open(folder / model / "tokenizer.json.xz").read())
        tokenizer = Tokenizer.from_str(json.dumps(spec))
        random_ones = random_texts(100 + number, tokenizer, TEXTS_OF_LARGE)
        rows = sample(tokenizer, random_ones)
        small = trim(spec, case_texts(cases, model) + random_ones, case_ids(cases, model))
        # The library numbers added tokens anew where the vocabulary has gaps, unless they are in it.
        vocabulary = small["model"]["vocab"] | {token["content"]: token["id"] for token in small["added_tokens"]}
        checked = {**small, "model": {**small["model"], "vocab": vocabulary}}
        if sample(Tokenizer.from_str(json.dumps(checked)), random_ones) != rows:
            sys.exit(f"{model}: the trimmed tokenizer gives other ids")
        write(DATA / "tokenizers" / f"{model}.json", json.dumps(small, ensure_ascii=False, separators=(",", ":")))
        golden[f"tokenizers/{model}.json"] = rows
    for number, name in enumerate(SMALL):
        file = f"tokenizer_{name}.json"
        tokenizer = Tokenizer.from_str((DATA / file).read_text())
        golden[file] = sample(tokenizer, random_texts(200 + number, tokenizer, TEXTS_OF_SMALL))
    groups = (f"{json.dumps(name)}:[\n" + ",\n".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in rows) + "]"
              for name, rows in golden.items())
    write(DATA / "tokenizer_random_golden.json", "{\n" + ",\n".join(groups) + "\n}")


if __name__ == "__main__":
    main()
