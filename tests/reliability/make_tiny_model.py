#!/usr/bin/env python3
"""Writes the model of the serving tests: Llama, 2 layers, hidden size 64, 512 tokens, random F32 weights, as GGUF.

Its arithmetic costs next to nothing, so that what is measured is the server. The vocabulary is every byte and 254 pairs of bytes (pieces of
ASCII words and of multi-byte characters), so that its random texts have characters cut between tokens and bytes that are no UTF-8.

Usage: make_tiny_model.py FILE.gguf [--layers 2] [--hidden 64] [--context 4096]   (needs numpy and gguf)
"""

import argparse

import gguf
import numpy

VOCABULARY = 512
HEADS, KV_HEADS = 4, 2
TEXT = ("the quick brown fox jumps over the lazy dog; once upon a time there was a small engine that could. "
        "Größe, Übung, señor, naïve café; Привет, мир; こんにちは世界; 你好，世界; مرحبا بالعالم; 🙂🚀🎉👩‍🚀 ")


def byte_characters():
    """GPT-2's printable stand-in of each byte."""
    plain = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAC + 1), *range(0xAE, 0xFF + 1)]
    table, spare = {}, 256
    for byte in range(256):
        if byte in plain:
            table[byte] = chr(byte)
        else:
            table[byte] = chr(spare)
            spare += 1
    return table


def vocabulary():
    character = byte_characters()
    tokens = [character[b] for b in range(256)]
    data = TEXT.encode() * 2
    counts = {}
    for left, right in zip(data, data[1:]):
        counts[left, right] = counts.get((left, right), 0) + 1
    pairs = sorted(counts, key=lambda pair: (-counts[pair], pair))
    for left in range(97, 123):  # enough of them in any case
        pairs += [(left, right) for right in range(97, 123) if (left, right) not in counts]
    merges = []
    for left, right in pairs[:VOCABULARY - 256 - 2]:
        tokens.append(character[left] + character[right])
        merges.append(f"{character[left]} {character[right]}")
    tokens += ["<|begin|>", "<|end|>"]
    assert len(tokens) == VOCABULARY and len(set(tokens)) == VOCABULARY
    return tokens, merges


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--context", type=int, default=4096)
    args = parser.parse_args()
    hidden, head = args.hidden, args.hidden // HEADS
    random = numpy.random.default_rng(7)

    def weights(rows, columns, scale=1.0):
        return (random.standard_normal((rows, columns)) * scale / numpy.sqrt(columns)).astype(numpy.float32)

    writer = gguf.GGUFWriter(args.file, "llama")
    writer.add_name("tiny")
    writer.add_block_count(args.layers)
    writer.add_context_length(args.context)
    writer.add_embedding_length(hidden)
    writer.add_feed_forward_length(2 * hidden)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(head)
    writer.add_vocab_size(VOCABULARY)
    tokens, merges = vocabulary()
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    control, normal = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL
    writer.add_token_types([control if token.startswith("<|") else normal for token in tokens])
    writer.add_token_merges(merges)
    writer.add_bos_token_id(VOCABULARY - 2)
    writer.add_eos_token_id(VOCABULARY - 1)
    writer.add_add_bos_token(False)
    writer.add_chat_template("{% for message in messages %}{{ message.role + ': ' + message.content + '\n' }}{% endfor %}")

    writer.add_tensor("token_embd.weight", weights(VOCABULARY, hidden))
    writer.add_tensor("output_norm.weight", numpy.ones(hidden, numpy.float32))
    writer.add_tensor("output.weight", weights(VOCABULARY, hidden, 2.0))
    for layer in range(args.layers):
        name = f"blk.{layer}."
        writer.add_tensor(name + "attn_norm.weight", numpy.ones(hidden, numpy.float32))
        writer.add_tensor(name + "attn_q.weight", weights(HEADS * head, hidden))
        writer.add_tensor(name + "attn_k.weight", weights(KV_HEADS * head, hidden))
        writer.add_tensor(name + "attn_v.weight", weights(KV_HEADS * head, hidden))
        writer.add_tensor(name + "attn_output.weight", weights(hidden, HEADS * head))
        writer.add_tensor(name + "ffn_norm.weight", numpy.ones(hidden, numpy.float32))
        writer.add_tensor(name + "ffn_gate.weight", weights(2 * hidden, hidden))
        writer.add_tensor(name + "ffn_up.weight", weights(2 * hidden, hidden))
        writer.add_tensor(name + "ffn_down.weight", weights(hidden, 2 * hidden))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
