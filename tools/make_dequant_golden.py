#!/usr/bin/env python3
"""Writes tests/data/tensor/dequant.json: random blocks of each quantized type and what the `gguf` package (PyPI) makes of them.

usage: make_dequant_golden.py OUT.json      (needs numpy and gguf)
"""
import json
import sys

import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import quants

BLOCKS = 3
# type: (bytes of a block, places of its f16 scales, which must be ordinary numbers)
LAYOUT = {"Q4_0": (18, [0]), "Q4_1": (20, [0, 2]), "Q5_0": (22, [0]), "Q5_1": (24, [0, 2]), "Q8_0": (34, [0]), "Q4_K": (144, [0, 2]),
          "Q5_K": (176, [0, 2]), "Q6_K": (210, [208])}


def main() -> None:
    rng = np.random.default_rng(7)
    cases = []
    for name, (size, scales) in LAYOUT.items():
        blocks = rng.integers(0, 256, (BLOCKS, size), dtype=np.uint8)
        for at in scales:
            blocks[:, at : at + 2] = rng.normal(0, 0.1, BLOCKS).astype(np.float16).view(np.uint8).reshape(BLOCKS, 2)
        values = quants.dequantize(blocks, Type[name]).astype(np.float32).reshape(-1)
        cases.append({"type": name, "hex": blocks.tobytes().hex(), "values_f32_hex": values.astype("<f4").tobytes().hex()})
    with open(sys.argv[1], "w", encoding="ascii") as out:
        json.dump(cases, out, indent=1)
        out.write("\n")


if __name__ == "__main__":
    main()
