#!/usr/bin/env python3
"""Writes a model folder small enough for thousands of requests a second: 2 layers, hidden 64, 512 tokens, no weights (--load-format dummy).

    tiny_model.py FOLDER
"""

import json
import pathlib
import sys

TEMPLATE = ("{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
            "{% if tools %}<|im_start|>tools\n{{ tools | tojson }}<|im_end|>\n{% endif %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|pad|>"]
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
          "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 512,
          "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
          "tie_word_embeddings": False, "torch_dtype": "float32", "bos_token_id": 508, "eos_token_id": 508}


def byte_letters():
    """The printable letter that stands for each byte in a byte-level vocabulary."""
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    rest = [byte for byte in range(256) if byte not in plain]
    letters = {byte: chr(byte) for byte in plain}
    letters.update({byte: chr(256 + i) for i, byte in enumerate(rest)})
    return [letters[byte] for byte in range(256)]


def write_tiny_model(folder):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    vocab = {letter: i for i, letter in enumerate(byte_letters())}
    merges = [(a, b) for a in "etaoinshr" for b in "etaoinshrdlucmfwypvbgkjqxz.,"]
    for a, b in merges:
        vocab[a + b] = len(vocab)
    added = [{"id": len(vocab) + i, "content": token, "special": True, "normalized": False, "lstrip": False,
              "rstrip": False, "single_word": False} for i, token in enumerate(SPECIAL)]
    assert added[-1]["id"] == CONFIG["vocab_size"] - 1
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
                 "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level,
                 "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                           "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                           "vocab": vocab, "merges": [f"{a} {b}" for a, b in merges]}}
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": SPECIAL[0], "eos_token": SPECIAL[0],
                "pad_token": SPECIAL[3], "chat_template": TEMPLATE}
    for name, content in [("config.json", CONFIG), ("tokenizer.json", tokenizer), ("tokenizer_config.json", settings)]:
        (folder / name).write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    return folder


if __name__ == "__main__":
    write_tiny_model(sys.argv[1])
