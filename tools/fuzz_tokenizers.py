#!/usr/bin/env python3
"""Compares quire's tokenizers with Hugging Face tokenizers on random texts: ids, decoded text, text token by token.

    pip install tokenizers==0.23.3 [sentencepiece gguf]
    ninja -C build/release quire_tokenizer_driver
    tools/fuzz_tokenizers.py [--texts 200000] [--seed 1] [NAME=]FILE...

FILE is a tokenizer.json (or tokenizer.json.xz), whose peer is tokenizers; a SentencePiece .model, whose peer is the library of that
name; or A.gguf,tokenizer.json: the GGUF in quire, the other file in the peer. Besides texts, random lists of ids are decoded.
Prints what differs (10 at most for each file) and ends with 1 if anything does. A stream is not compared where the text holds U+FFFD:
of a run of byte tokens that is no UTF-8 the peer shows one for each byte, also for those that were shown before. Nor are lists of
ids of a SentencePiece model where it holds one: there each broken byte is one.
"""
import argparse
import json
import lzma
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
from typing import Any, Callable, Iterator

ROOT = pathlib.Path(__file__).resolve().parent.parent
DRIVER = ROOT / "build/release/bench/quire_tokenizer_driver"

WORDS = (
    "the The THE HelloWorld don't DON'T I'll we'VE it's 'S '\u017f na\u00efve caf\u00e9 cafe\u0301 \u00fcber Stra\u00dfe "
    "\u00c9COLE \u0130stanbul \u4f60\u597d \u5ba2\u5355\u4ef7 \u3053\u3093\u306b\u3061\u306f \u30ab\u3099 \uff76\uff9e "
    "\uc548\ub155 \u1100\u1161\u11a8 \u041f\u0440\u0438\u0432\u0435\u0442 \u05e9\u05c1\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627 "
    "\u0939\u093f\u0928\u094d\u0926\u0940 \u0e44\u0e17\u0e22 \U0001f469\U0001f3ff\u200d\U0001f680 \U0001f1e9\U0001f1ea\U0001f1eb "
    "\U0001f600 12345 3.14159 0x1F x\u00b2 \u00bd \u2167 \ufb01 \u01c5 \u02b0 \u00aa \u2122 \u33a5 \ufdfa \u32ff f(a,b); "
    "{\"k\":[1]} //x */ <s> </s> <unk> [CLS] [MASK] <|im_end|> <0x0A> <0xE4> \u0120 \u2581 \u2581\u2581 a\u2581b ##ing "
    "can not . , ! do n't isn't U.S.A. e-mail a_b __init__ #tag @me http://x.y/z?q=1&r=2 1,234.5% \u20ac5 ---- ==== \u2026"
).split(" ")
SPACES = [" ", " ", "  ", "   ", "\n", "\r", "\r\n", "\t", "\n\n ", "\u00a0", "\u3000", "\u2028", "\u0085", "\u200b", "\u1680", "\x0b"]
BLOCKS = (0x00, 0x80, 0x100, 0x180, 0x300, 0x370, 0x400, 0x590, 0x600, 0x900, 0xE00, 0x1100, 0x1C80, 0x1E00, 0x1F00, 0x2000, 0x2100,
          0x2190, 0x2460, 0x2C00, 0x3000, 0x3200, 0x3300, 0x4E00, 0xA640, 0xA700, 0xAB00, 0xAC00, 0xD700, 0xF900, 0xFB00, 0xFD00,
          0xFE00, 0xFF00, 0xFFF0 - 0xF0, 0x10000, 0x10400, 0x10500, 0x10D00, 0x11000, 0x11300, 0x11D00, 0x16100, 0x16F00, 0x1D100,
          0x1D400, 0x1E000, 0x1E900, 0x1F000, 0x1F100, 0x1F200, 0x1F300, 0x1F900, 0x20000, 0x2B800, 0x2F800, 0xE0000, 0x10FF00)
MARKS = "\u0300\u0301\u0302\u0308\u030a\u0316\u0323\u0327\u0328\u0334\u0345\u3099\u309a\u093c\u094d\u05b4\u064b\u200d\ufe0f\U0001f3fd"
REPEATED = "aA1 \n\t-=_.'\u4f60\u00e9\u2581\u0301"


def random_character(rng: random.Random) -> str:
    while True:
        code = rng.choice(BLOCKS) + rng.randint(0, 255) if rng.random() < 0.9 else rng.randint(0, 0x10FFFF)
        if not 0xD800 <= code < 0xE000:
            return chr(code)


def random_text(rng: random.Random, tokens: list[str]) -> str:
    parts: list[str] = []
    for _ in range(rng.choice((1, 2, 3, 5, 8, 13))):
        kind = rng.random()
        if kind < 0.35:
            parts.append(rng.choice(WORDS))
        elif kind < 0.55:
            parts.append(rng.choice(SPACES))
        elif kind < 0.65 and tokens:
            parts.append(rng.choice(tokens))
        elif kind < 0.74:
            parts.append("".join(chr(rng.randint(32, 126)) for _ in range(rng.randint(1, 8))))
        elif kind < 0.90:
            parts.append("".join(random_character(rng) for _ in range(rng.randint(1, 4))))
        elif kind < 0.96:
            parts.append(rng.choice("aeoAEsx\u304b\u0915") + "".join(rng.choice(MARKS) for _ in range(rng.randint(1, 3))))
        else:
            parts.append(rng.choice(REPEATED) * rng.randint(1, 40))
    return "".join(parts)


class Peer:
    """Ids and text of the reference, for lists of texts."""

    def __init__(self, path: pathlib.Path) -> None:
        self.encode: Callable[[list[str]], list[list[int]]]
        self.decode: Callable[[list[list[int]], bool], list[str]]
        if path.suffix == ".model":
            import sentencepiece
            self.model = sentencepiece.SentencePieceProcessor(model_file=str(path))
            self.size = self.model.vocab_size()
            bos = [self.model.bos_id()] if self.model.serialized_model_proto() and self.is_bpe() else []
            self.encode = lambda texts: [bos + ids for ids in self.model.encode(texts)]
            special = {i for i in range(self.size) if self.model.is_control(i) or self.model.is_unknown(i)}
            self.decode = lambda lists, skip: self.model.decode([[i for i in ids if i not in special] for ids in lists])
            self.tokens = [self.model.id_to_piece(i) for i in range(self.size) if i not in special]
            self.control = special
            # Spelled in a text these are tokens for quire, as for transformers, and plain text for the peer.
            self.unlike = [self.model.id_to_piece(i) for i in special]
            return
        import tokenizers
        text = (lzma.open(path).read() if path.suffix == ".xz" else path.read_bytes()).decode()
        model = tokenizers.Tokenizer.from_str(text)
        model.no_truncation()
        model.no_padding()
        self.size = model.get_vocab_size()
        self.encode = lambda texts: [encoding.ids for encoding in model.encode_batch_fast(texts)]
        self.decode = lambda lists, skip: model.decode_batch(lists, skip_special_tokens=skip)
        added = [t.content for t in model.get_added_tokens_decoder().values()]
        rng = random.Random(0)
        vocabulary = sorted(model.get_vocab())
        self.tokens = added[:300] + added[-100:] + rng.sample(vocabulary, min(400, len(vocabulary)))
        self.control = set()
        self.unlike = []

    def is_bpe(self) -> bool:
        # BPE scores are ranks: 0, -1, -2, ...
        normal = [i for i in range(self.size) if not (self.model.is_control(i) or self.model.is_unknown(i) or self.model.is_byte(i))]
        return all(self.model.get_score(i) == int(self.model.get_score(i)) for i in normal[:200])


class Driver:
    def __init__(self, command: str, path: pathlib.Path) -> None:
        self.command = [str(DRIVER), command, str(path)]

    def run(self, rows: list[bytes]) -> Iterator[Callable[[], bytes]]:
        answer = subprocess.run(self.command, input=b"".join(rows), stdout=subprocess.PIPE, check=True).stdout
        at = 0

        def counted(size: int = 1) -> bytes:
            nonlocal at
            (count,) = struct.unpack_from("<I", answer, at)
            begin, at = at + 4, at + 4 + count * size
            return answer[begin:at]

        for _ in rows:
            yield counted


def ids_of(data: bytes) -> list[int]:
    return list(struct.unpack(f"<{len(data) // 4}i", data))


class Report:
    def __init__(self, name: str) -> None:
        self.name, self.count = name, 0

    def differs(self, what: str, source: Any, expected: Any, got: Any) -> None:
        self.count += 1
        if self.count <= 10:
            print(f"{self.name}: {what} of {source!a}:\n  expected {expected!a}\n  got      {got!a}")


def same_stream(shown: str, decoded: str) -> bool:
    """A stream goes on from a prompt and doesn't know its last token: it keeps the spaces that decoding a whole text drops there."""
    return shown.lstrip(" ") == decoded.lstrip(" ") or shown.strip(" ") == decoded.strip(" ")


def compare_texts(quire: pathlib.Path, peer: Peer, texts: list[str], report: Report) -> None:
    rows = [struct.pack("<I", len(data)) + data for data in (text.encode() for text in texts)]
    expected = peer.encode(texts)
    decoded = peer.decode(expected, True)
    for text, ids, back, counted in zip(texts, expected, decoded, Driver("texts", quire).run(rows)):
        got, got_back, got_shown = ids_of(counted(4)), counted().decode(), counted().decode()
        if got != ids:
            report.differs("ids", text, ids, got)
        elif got_back != back:
            report.differs("decoded text", text, back, got_back)
        elif "\ufffd" not in back and not same_stream(got_shown, back):
            report.differs("text token by token", text, back, got_shown)


def compare_ids(quire: pathlib.Path, peer: Peer, lists: list[list[int]], report: Report) -> None:
    rows = [struct.pack(f"<I{len(ids)}i", len(ids), *ids) for ids in lists]
    decoded = peer.decode(lists, False)
    for ids, back, counted in zip(lists, decoded, Driver("ids", quire).run(rows)):
        got_back, _ = counted().decode(), counted().decode()
        if got_back != back and not (peer.unlike and "\ufffd" in back):
            report.differs("text", ids, back, got_back)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--texts", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    failed = False
    for argument in options.files:
        name, _, files = argument.rpartition("=")
        own, _, other = files.partition(",")
        own_path, peer_path = pathlib.Path(own), pathlib.Path(other or own)
        name = name or own_path.parent.name or own_path.name
        peer = Peer(peer_path)
        report = Report(name)
        with tempfile.TemporaryDirectory() as folder:
            if own_path.suffix == ".xz":
                unpacked = pathlib.Path(folder) / "tokenizer.json"
                unpacked.write_bytes(lzma.open(own_path).read())
                own_path = unpacked
            rng = random.Random(options.seed)
            done = 0
            while done < options.texts:
                count = min(20_000, options.texts - done)
                texts = [random_text(rng, peer.tokens) for _ in range(count)]
                texts = [text for text in texts if not any(token in text for token in peer.unlike)]
                compare_texts(own_path, peer, texts, report)
                lists = [[rng.randrange(peer.size) for _ in range(rng.randint(0, 12))] for _ in range(count // 10)]
                lists = [[i for i in ids if i not in peer.control] for ids in lists]
                compare_ids(own_path, peer, lists, report)
                done += count
        print(f"{name}: {options.texts} texts, {report.count} differ", flush=True)
        failed = failed or report.count > 0
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
