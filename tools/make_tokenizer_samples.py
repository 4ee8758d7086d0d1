#!/usr/bin/env python3
"""Makes small tokenizers of the kinds of BERT, T5, XLM-R, GPT-2, CLIP and Llama, as tokenizer.json and SentencePiece models.

    pip install tokenizers==0.23.3 sentencepiece==0.2.3
    tools/make_tokenizer_samples.py [--full] [--no-sentencepiece] [FOLDER]

Writes tokenizer_{bert,bert_cased,t5,xlmr,gpt2,clip,scripts,spelled}.json, unigram.model, bpe.model and tokenizer_sentencepiece_golden.json, by default to tests/data/text. --full: with the
whole character map of nmt_nfkc in place of a few of its rules, for tools/fuzz_tokenizers.py. What SentencePiece trains may differ
from run to run; --no-sentencepiece leaves out what comes of it.
"""
import argparse
import base64
import json
import pathlib
import random
import sys
import tempfile
from typing import Any

import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from fuzz_tokenizers import random_text  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
CORPUS = [
    "The theme of the house is other than this one; these words are there to be cut into pieces, and put together again.",
    "Natalia sold clips to 48 of her friends in April, and then she sold half as many clips in May. How many clips?",
    "Weng earns $12 an hour for babysitting. Yesterday, she just did 50 minutes of babysitting. How much did she earn?",
    "Caf\u00e9s in Z\u00fcrich don't serve na\u00efve \u00fcber-jalape\u00f1os; Stra\u00dfe, \u00c9cole, \u0130stanbul, \u0391\u03b8\u03ae\u03bd\u03b1, "
    "\u041c\u043e\u0441\u043a\u0432\u0430.",
    "\u4f60\u597d\uff0c\u4e16\u754c\u3002\u3053\u3093\u306b\u3061\u306f\u4e16\u754c\u3002\uc548\ub155\ud558\uc138\uc694 \uc138\uacc4.",
    "It's \"quoted\" (and bracketed) [twice] {thrice}: a_b = f(x, y) * 3.14159 - 2e10 / 0x1F; // done!",
]
# Some rules of nmt_nfkc, as code points: source, tab, target.
RULES = ("9\t20\nA\t20\nD\t20\nA0\t20\n3000\t20\n200B\t20\n1\t\n7F\t\nAA\t61\nB2\t32\nBD\t31 2044 32\nFB01\t66 69\nFF21\t41\n"
         "FF01\t21\nFF76\t30AB\nFF76 FF9E\t30AC\n65 301\tE9\n41 30A\tC5\n33A5\t6D 33\nFDFA\t635 644 649\n2026\t2E 2E 2E\n")


def fields(data: bytes) -> dict[int, bytes]:
    """The last bytes value of each field of a protocol buffer message."""
    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    at, result = 0, {}
    while at < len(data):
        tag = varint()
        if tag & 7 == 0:
            varint()
        elif tag & 7 == 2:
            length = varint()
            result[tag >> 3] = data[at:at + length]
            at += length
        else:
            at += {1: 8, 5: 4}[tag & 7]
    return result


def train_sentencepiece(folder: pathlib.Path, name: str, full: bool, **options: Any) -> sentencepiece.SentencePieceProcessor:
    with tempfile.TemporaryDirectory() as scratch:
        corpus, rules = pathlib.Path(scratch) / "corpus", pathlib.Path(scratch) / "rules.tsv"
        corpus.write_text("\n".join(CORPUS * 20) + "\n")
        rules.write_text(RULES)
        if options.get("normalization_rule_name") is None and not full:
            options.pop("normalization_rule_name", None)
            options["normalization_rule_tsv"] = str(rules)
        sentencepiece.SentencePieceTrainer.train(input=str(corpus), model_prefix=f"{scratch}/m", minloglevel=2, num_threads=1, hard_vocab_limit=False,
                                                 **options)
        (folder / f"{name}.model").write_bytes((pathlib.Path(scratch) / "m.model").read_bytes())
    return sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{name}.model"))


def write(folder: pathlib.Path, name: str, tokenizer: Tokenizer) -> None:
    path = folder / f"tokenizer_{name}.json"
    path.write_text(json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=True, separators=(",", ":")) + "\n")
    print(f"{path.name}: {path.stat().st_size} bytes")


def bert(lowercase: bool) -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator(CORPUS, trainers.WordPieceTrainer(vocab_size=400, special_tokens=specials, show_progress=False))
    if lowercase:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
            special_tokens=[(name, tokenizer.token_to_id(name)) for name in ("[CLS]", "[SEP]")])
    else:
        tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return tokenizer


def gpt2() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=True, add_prefix_space=False)
    trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=["<s>", "<pad>", "</s>", "<|endoftext|>"], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def clip() -> Tokenizer:
    """Words end in </w>, and bytes are spelled as characters."""
    tokenizer = Tokenizer(models.BPE(unk_token="<|endoftext|>", end_of_word_suffix="</w>", fuse_unk=False))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()])
    pattern = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "removed", invert=True),
                                                       pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=700, special_tokens=["<|startoftext|>", "<|endoftext|>"], show_progress=False,
                                  end_of_word_suffix="</w>", initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(CORPUS, trainer)
    # Every byte also ends a word, but for some, which are unknown there.
    spec = json.loads(tokenizer.to_str())
    vocabulary = spec["model"]["vocab"]
    for character in sorted(pre_tokenizers.ByteLevel.alphabet()):
        if character not in "\u0120qZ%":
            vocabulary.setdefault(character + "</w>", len(vocabulary))
    tokenizer = Tokenizer.from_str(json.dumps(spec))
    tokenizer.post_processor = processors.RobertaProcessing(("<|endoftext|>", 1), ("<|startoftext|>", 0), add_prefix_space=False)
    return tokenizer


def scripts() -> Tokenizer:
    """Words are of one script, their tokens but for the first are marked, and unknown characters are bytes or one token."""
    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]", continuing_subword_prefix="##", end_of_word_suffix="_", fuse_unk=True, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.UnicodeScripts()
    tokenizer.decoder = decoders.Sequence([decoders.Replace("##", ""), decoders.Replace("_", " ")])
    trainer = trainers.BpeTrainer(vocab_size=600, special_tokens=["[UNK]"], show_progress=False, continuing_subword_prefix="##",
                                  end_of_word_suffix="_")
    tokenizer.train_from_iterator(CORPUS, trainer)
    spec = json.loads(tokenizer.to_str())
    for byte in [*b"#_", *range(0xC0, 0xE6), *range(0x80, 0xC0)]:
        spec["model"]["vocab"].setdefault(f"<0x{byte:02X}>", len(spec["model"]["vocab"]))
    return Tokenizer.from_str(json.dumps(spec))


def spelled() -> Tokenizer:
    """The normalizer spells bytes as characters, then words of seven of them are cut off."""
    tokenizer = Tokenizer(models.BPE(unk_token=None))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.ByteLevel()])
    tokenizer.pre_tokenizer = pre_tokenizers.FixedLength(length=7)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=["<s>", "</s>"], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_tokens([AddedToken("na\u00efve", normalized=True), AddedToken("\u00e9t\u00e9", normalized=False)])
    return tokenizer


def unigram(model: sentencepiece.SentencePieceProcessor, charsmap: bytes) -> Tokenizer:
    """T5's, as transformers converts it."""
    vocabulary = [(model.id_to_piece(i), model.get_score(i)) for i in range(model.vocab_size())]
    tokenizer = Tokenizer(models.Unigram(vocabulary, model.unk_id(), False))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Precompiled(charsmap), normalizers.Strip(left=False, right=True),
                                                 normalizers.Replace(Regex(" {2,}"), "\u2581")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="\u2581", prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(replacement="\u2581", prepend_scheme="always")
    tokenizer.add_special_tokens(["<pad>", "</s>", "<unk>"])
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>",
                                                             special_tokens=[("</s>", model.eos_id())])
    return tokenizer


def xlmr(model: sentencepiece.SentencePieceProcessor, charsmap: bytes) -> Tokenizer:
    """XLM-R's, with byte fallback: white space splits words before U+2581 is put in front, as in files of tokenizers 0.8."""
    tokenizer = unigram(model, charsmap)
    spec = json.loads(tokenizer.to_str())
    vocabulary = spec["model"]["vocab"]
    vocabulary += [[f"<0x{byte:02X}>", -20.0] for byte in range(256)]
    spec["model"]["byte_fallback"] = True
    spec["normalizer"] = spec["normalizer"]["normalizers"][0]
    spec["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [
        {"type": "WhitespaceSplit"}, {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}]}
    spec["decoder"] = {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, spec["decoder"]]}
    return Tokenizer.from_str(json.dumps(spec))


def sample(path: pathlib.Path, bos: list[int]) -> list[list[Any]]:
    """Random texts, their ids and what decoding gives, by SentencePiece's own library."""
    model = sentencepiece.SentencePieceProcessor(model_file=str(path))
    special = [i for i in range(model.vocab_size()) if model.is_control(i) or model.is_unknown(i)]
    rng, rows = random.Random(5), []
    while len(rows) < 100:
        text = random_text(rng, [])
        if any(model.id_to_piece(i) in text for i in special):
            continue  # a token here, plain text there
        ids = model.encode(text)
        rows.append([text, bos + ids, model.decode([i for i in ids if i not in special])])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=pathlib.Path, default=ROOT / "tests" / "data" / "text")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--no-sentencepiece", action="store_true")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    write(options.folder, "bert", bert(True))
    write(options.folder, "bert_cased", bert(False))
    for make in (gpt2, clip, scripts, spelled):
        write(options.folder, make.__name__, make())
    if options.no_sentencepiece:
        return
    rules = "nmt_nfkc" if options.full else None
    model = train_sentencepiece(options.folder, "unigram", options.full, model_type="unigram", vocab_size=350, pad_id=0, eos_id=1,
                                unk_id=2, bos_id=-1, normalization_rule_name=rules, character_coverage=0.98)
    charsmap = fields(fields(model.serialized_model_proto())[3])[2]
    write(options.folder, "t5", unigram(model, charsmap))
    write(options.folder, "xlmr", xlmr(model, charsmap))
    train_sentencepiece(options.folder, "bpe", options.full, model_type="bpe", vocab_size=520, byte_fallback=True,
                        normalization_rule_name="identity", remove_extra_whitespaces=False, character_coverage=0.98)
    golden = {name: sample(options.folder / f"{name}.model", bos) for name, bos in (("unigram", []), ("bpe", [1]))}
    (options.folder / "tokenizer_sentencepiece_golden.json").write_text(json.dumps(golden, ensure_ascii=True, indent=None) + "\n")
    print(f"character map: {len(base64.b64encode(charsmap))} bytes")


if __name__ == "__main__":
    main()
