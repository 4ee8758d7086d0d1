#!/usr/bin/env python3
"""Writes the seeds of the fuzz programs sentencepiece_model and gguf_vocabulary: small files of every kind that loads.

    pip install gguf
    tools/make_fuzz_seeds.py [SEEDS_FOLDER]

The SentencePiece seeds are the models of tests/data/text, whole and with few pieces; GGUF ones are written here.
"""
import pathlib
import sys

from gguf import GGUFWriter

ROOT = pathlib.Path(__file__).resolve().parent.parent
DATA = ROOT / "tests" / "data" / "text"
MOST_PIECES = 40
PRE_NAMES = ("default", "gpt-2", "smollm", "falcon", "llama-bpe", "qwen2", "deepseek-v3", "gpt-4o", "tekken")
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6


def fields(data: bytes) -> list[tuple[int, bytes]]:
    """(number, the field as it stands in the message) of a protocol buffer whose fields are all of wire type 2."""
    result, at = [], 0
    while at < len(data):
        begin, tag, length, shift = at, data[at], 0, 0
        at += 1
        while True:
            length |= (data[at] & 127) << shift
            shift += 7
            at += 1
            if data[at - 1] < 128:
                break
        at += length
        result.append((tag >> 3, data[begin:at]))
    return result


def sentence_piece(folder: pathlib.Path) -> None:
    for name in ("unigram", "bpe"):
        model = (DATA / f"{name}.model").read_bytes()
        (folder / name).write_bytes(model)
        parts = fields(model)
        pieces = [part for number, part in parts if number == 1]
        others = [part for number, part in parts if number != 1]
        (folder / f"{name}_few").write_bytes(b"".join(pieces[:MOST_PIECES] + others))
        (folder / f"{name}_plain").write_bytes(b"".join(pieces[-MOST_PIECES:]))


def write_gguf(path: pathlib.Path, model: str, pre: str | None, tokens: list[tuple[str, int]], merges: list[str],
               scores: bool, flags: dict[str, bool]) -> None:
    writer = GGUFWriter(path, arch="llama")
    writer.add_tokenizer_model(model)
    if pre is not None:
        writer.add_tokenizer_pre(pre)
    writer.add_token_list([token for token, _ in tokens])
    writer.add_token_types([kind for _, kind in tokens])
    if merges:
        writer.add_token_merges(merges)
    if scores:
        writer.add_token_scores([-float(i) for i in range(len(tokens))])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    for name, value in flags.items():
        getattr(writer, f"add_add_{name}")(value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def gguf(folder: pathlib.Path) -> None:
    letters = [(letter, NORMAL) for letter in "Helowrd,123it's\u0120\u010a\u00c3\u00b6"]
    tokens = [("<s>", CONTROL), ("</s>", CONTROL), *dict.fromkeys(letters), ("ll", NORMAL), ("He", NORMAL), ("\u0120w", NORMAL),
              ("12", NORMAL), ("\u00c3\u00b6", NORMAL), ("a<", USER_DEFINED)]
    merges = ["l l", "H e", "\u0120 w", "1 2", "\u00c3 \u00b6"]
    for pre in PRE_NAMES:
        write_gguf(folder / f"gpt2_{pre}", "gpt2", pre, tokens, merges, False, {})
    write_gguf(folder / "gpt2_flags", "gpt2", "gpt-2", tokens, merges, False, {"bos_token": True, "eos_token": True, "space_prefix": True})
    spaced = [("<s>", CONTROL), ("</s>", CONTROL), ("<unk>", UNKNOWN), *[(f"<0x{byte:02X}>", BYTE) for byte in range(0xB0, 0xC8)],
              *[(piece, NORMAL) for piece in ("\u2581", "H", "e", "l", "o", "\u2581He", "ll", "llo", "\u00f6", "1", "23", "\u2581\u2581")]]
    write_gguf(folder / "llama", "llama", None, spaced, [], True, {})
    write_gguf(folder / "llama_flags", "llama", "default", spaced, [], True, {"bos_token": False, "space_prefix": False})


def main() -> None:
    seeds = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "tests" / "fuzz" / "seeds"
    for name, make in (("sentencepiece_model", sentence_piece), ("gguf_vocabulary", gguf)):
        folder = seeds / name
        folder.mkdir(parents=True, exist_ok=True)
        make(folder)
        print(f"{name}: {sum(path.stat().st_size for path in folder.iterdir())} bytes")


if __name__ == "__main__":
    main()
