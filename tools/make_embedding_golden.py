#!/usr/bin/env python3
"""Writes tests/data/oracle/embeddings.json: hidden states of transformers after the last norm, for some prompts of smollm2.json.

usage: make_embedding_golden.py FOLDER

FOLDER is the model as tools/gguf_to_hf.py writes it, in float32. For the first "tokens" of each prompt: the state of the last one ("last") and
the mean over all ("mean"), not normalized, as little-endian float32 in base64. Needs torch and transformers.
"""

import argparse
import base64
import json
import pathlib

import torch
import transformers

TOKENS_OF_PROMPT = {0: 37, 4: 81, 5: 200}  # by index: the first so many
DATA = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data" / "oracle"


def encode(vector: torch.Tensor) -> str:
    return base64.b64encode(vector.to(torch.float32).numpy().astype("<f4").tobytes()).decode()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    args = parser.parse_args()
    model = transformers.AutoModel.from_pretrained(args.folder, dtype=torch.float32).eval()
    items = []
    prompts = json.loads((DATA / "smollm2.json").read_text())["items"]
    for prompt, tokens in TOKENS_OF_PROMPT.items():
        with torch.inference_mode():
            states = model(torch.tensor([prompts[prompt]["prompt_ids"][:tokens]])).last_hidden_state[0]
        items.append({"prompt": prompt, "tokens": tokens, "last": encode(states[-1]), "mean": encode(states.mean(dim=0))})
    golden = {"torch": torch.__version__, "transformers": transformers.__version__, "dtype": "float32", "items": items}
    (DATA / "embeddings.json").write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main()
