#!/usr/bin/env python3
"""The answers that lm_eval logged beside those of transformers in fp32, for the same prompts and limits.

Usage: check_lm_eval.py HF_FOLDER SAMPLES.jsonl... [--max-tokens 256] [--tie 1e-4]
HF_FOLDER: the model as gguf_to_hf.py writes it. SAMPLES: files of --log_samples, of one or more runs of the same task
(of both layouts, say). Needs torch and transformers. Ends with 1 if any answer differs where there is no tie: a place
where transformers' two largest logits lie less than --tie apart.
"""

import argparse
import json
import pathlib
import sys

import torch
import transformers


def read_samples(path: str) -> dict[int, dict[str, object]]:
    samples = {}
    for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        arguments = record["arguments"]["gen_args_0"]
        messages = arguments["arg_0"][0] if isinstance(arguments["arg_0"], list) else arguments["arg_0"]
        samples[record["doc_id"]] = {"messages": json.loads(messages), "stop": arguments["arg_1"]["until"], "text": record["resps"][0][0]}
    return samples


def cut(text: str, stops: list[str]) -> str:
    return text[: min((at for at in (text.find(stop) for stop in stops) if at >= 0), default=len(text))]


class Reference:
    def __init__(self, folder: str) -> None:
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        self.model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.cache = transformers.DynamicCache()
        self.last: list[int] = []

    def prompt(self, messages: list[dict[str, str]]) -> str:
        return self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)

    @torch.inference_mode()
    def answer(self, prompt: str, draft: str, max_tokens: int) -> list[int]:
        """The greedy tokens after the prompt, to the end of sequence, which is left out. Those of the draft are asked about in one pass,
        as in speculative decoding; from the first one that the model would not choose on it is one token after the other. What a prompt
        shares with the one before is not computed again."""
        ids = self.ids(prompt)
        self.keep(min(self.shared_with_last(ids), len(ids) - 1))
        self.last = ids
        guess = self.ids(draft)[:max_tokens]
        logits = self.run(ids[self.cache.get_seq_length() :] + guess)[-len(guess) - 1 :]
        chosen = logits.argmax(-1).tolist()
        good = next((i for i, (a, b) in enumerate(zip(chosen, guess)) if a != b), len(guess))
        out = chosen[: good + 1]
        self.keep(len(ids) + good)
        while out[-1] != self.tokenizer.eos_token_id and len(out) < max_tokens:
            out.append(int(self.run([out[-1]])[-1].argmax()))
        self.keep(len(ids))
        return out[:max_tokens] if out[-1] != self.tokenizer.eos_token_id else out[:-1]

    def keep(self, tokens: int) -> None:
        if (surplus := self.cache.get_seq_length() - tokens) > 0:
            self.cache.crop(-surplus)

    def ids(self, text: str) -> list[int]:
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]

    def shared_with_last(self, ids: list[int]) -> int:
        return next((i for i, (a, b) in enumerate(zip(ids, self.last)) if a != b), min(len(ids), len(self.last)))

    def run(self, ids: list[int]) -> torch.Tensor:
        return self.model(torch.tensor([ids]), past_key_values=self.cache, use_cache=True).logits[0]

    @torch.inference_mode()
    def gap(self, prompt: str, ids: list[int]) -> float:
        """How far the two largest logits after the prompt and these tokens lie apart."""
        top = self.model(torch.tensor([self.ids(prompt) + ids])).logits[0, -1].topk(2).values
        return float(top[0] - top[1])


def first_difference(reference: Reference, ids: list[int], text: str) -> int:
    """The first of the tokens whose text is not that of the answer any more."""
    for count in range(1, len(ids) + 1):
        if not text.startswith(reference.tokenizer.decode(ids[:count], skip_special_tokens=True).rstrip("\N{REPLACEMENT CHARACTER}")):
            return count - 1
    return len(ids)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("samples", nargs="+")
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--tie", type=float, default=1e-4)
    args = parser.parse_args()
    runs = [read_samples(path) for path in args.samples]
    if any(run.keys() != runs[0].keys() for run in runs):
        raise SystemExit("the files hold different samples")
    reference = Reference(args.model)
    order = sorted(runs[0])
    equal, tied, different = 0, [], []
    for count, i in enumerate(order, 1):
        prompt = reference.prompt(runs[0][i]["messages"])
        ids = reference.answer(prompt, runs[0][i]["text"], args.max_tokens)
        text = cut(reference.tokenizer.decode(ids, skip_special_tokens=True), runs[0][i]["stop"])
        for path, run in zip(args.samples, runs):
            if run[i]["text"] == text:
                equal += 1
                continue
            at = first_difference(reference, ids, run[i]["text"])
            gap = reference.gap(prompt, ids[:at])
            (tied if gap < args.tie else different).append((path, i, at, gap))
        print(f"{count} of {len(order)} samples: {equal} texts equal, {len(tied)} tied, {len(different)} different", file=sys.stderr, flush=True)
    for kind, found in (("tie", tied), ("different", different)):
        for path, i, at, gap in found:
            print(f"{kind}: {path}, sample {i}, token {at}: the largest logits are {gap:.2g} apart")
    print(f"{len(order)} samples of {len(runs)} runs: {equal} texts are those of transformers {transformers.__version__}, {len(tied)} differ at ties, {len(different)} differ")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
