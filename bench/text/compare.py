#!/usr/bin/env python3
"""Times quire's tokenizers beside Hugging Face tokenizers, one thread each, in CPU seconds.

    pip install tokenizers==0.23.3
    ninja -C build/release quire_tokenizer_driver
    bench/text/compare.py GSM8K.jsonl... -- TOKENIZER...      encoding the text, loading the file
    bench/text/compare.py --repeated -- TOKENIZER...          one character again and again, up to 4 MB: time(2n) / time(n)

TOKENIZER: tokenizer.json or tokenizer.json.xz; --repeated also takes SentencePiece models and GGUF files. JSON lines have "question"
and "answer"; each line of both is a text. The two programs take turns, the best of three rounds counts.
"""
import json
import lzma
import os
import pathlib
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
DRIVER = pathlib.Path(__file__).resolve().parents[2] / "build/release/bench/quire_tokenizer_driver"
ROUNDS = 3
PIECES = ("a", " ", "\n", "0", "'", "\u4f60", "\u00e9", "\u2581", "\u0301", "\U0001f600", "<")
MAX_RATIO = 2.3
SIZES = (1 << 20, 1 << 21, 1 << 22)


# Memory from the system for each text, whatever its size: otherwise the shorter ones reuse pages that the longer ones fault in.
FRESH_PAGES = {**os.environ, "GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=131072"}


def drive(*args: str, env: dict[str, str] | None = None) -> list[float]:
    done = subprocess.run([DRIVER, *args], capture_output=True, text=True, check=True, env=env)
    return [float(word) for word in done.stdout.split()]


def unpacked(path: pathlib.Path, folder: str) -> pathlib.Path:
    if path.suffix != ".xz":
        return path
    target = pathlib.Path(folder) / "tokenizer.json"
    target.write_bytes(lzma.open(path).read())
    return target


def compare(name: str, path: pathlib.Path, lines: list[str], text_path: str) -> None:
    import tokenizers
    own: list[list[float]] = []
    peer: list[tuple[float, float]] = []
    tokens = 0
    for _ in range(ROUNDS):
        own.append(drive("time", str(path), text_path, "1"))
        begin = time.process_time()
        model = tokenizers.Tokenizer.from_file(str(path))
        loaded = time.process_time()
        tokens = sum(len(model.encode(line, add_special_tokens=False)) for line in lines)
        one_by_one = time.process_time() - loaded
        begin_batch = time.process_time()
        model.encode_batch_fast(lines, add_special_tokens=False)
        peer.append((loaded - begin, min(one_by_one, time.process_time() - begin_batch)))
    load, encode = min(row[0] for row in own), min(row[1] for row in own)
    peer_load, peer_encode = min(row[0] for row in peer), min(row[1] for row in peer)
    megabytes = sum(len(line.encode()) for line in lines) / 1e6
    if tokens != own[0][2]:
        sys.exit(f"{name}: {own[0][2]:.0f} tokens, the peer has {tokens}")
    print(f"{name}: {tokens} tokens; encoding {megabytes / encode:.1f} MB/s, peer {megabytes / peer_encode:.1f} MB/s, "
          f"{peer_encode / encode:.2f} times as fast; loading {load:.3f} s, peer {peer_load:.3f} s", flush=True)


def repeated(name: str, path: pathlib.Path) -> bool:
    worst = ("", 0.0)
    slowest = ("", 0.0)
    for piece in PIECES:
        seconds = [float("inf")] * len(SIZES)
        for _ in range(ROUNDS):
            seconds = [min(best, drive("repeat", str(path), piece, str(size), env=FRESH_PAGES)[0]) for best, size in zip(seconds, SIZES)]
            ratio = max(b / max(a, 1e-3) for a, b in zip(seconds, seconds[1:]))
            if ratio <= MAX_RATIO:
                break  # else measure again: other work may have come between
        worst = max(worst, (repr(piece), ratio), key=lambda row: row[1])
        slowest = max(slowest, (repr(piece), seconds[-1]), key=lambda row: row[1])
    print(f"{name}: time(2n)/time(n) at most {worst[1]:.2f} ({worst[0]}); 4 MB in at most {slowest[1]:.2f} s ({slowest[0]})", flush=True)
    return worst[1] <= MAX_RATIO


def main() -> None:
    if "--" not in sys.argv:
        sys.exit(__doc__)
    split = sys.argv.index("--")
    sources, tokenizers = sys.argv[1:split], [pathlib.Path(arg) for arg in sys.argv[split + 1:]]
    lines = [line.strip() for source in sources if source != "--repeated" for row in pathlib.Path(source).read_text().splitlines()
             for part in ("question", "answer") for line in json.loads(row)[part].splitlines()]
    good = True
    with tempfile.TemporaryDirectory() as folder:
        text_path = pathlib.Path(folder) / "text"
        text_path.write_text("\n".join(lines))
        for path in tokenizers:
            name = path.parent.name if path.stem.startswith("tokenizer") and path.parent.name != "text" else path.name
            own = unpacked(path, folder)
            if "--repeated" in sources:
                good = repeated(name, own) and good
            else:
                compare(name, own, lines, str(text_path))
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
