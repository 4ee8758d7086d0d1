#!/usr/bin/env python3
"""Writes tests/data/checkpoint/yarn_cases.json: YaRN's inverse frequencies and the factor of its cosines and sines.

From the formulas of arXiv 2309.00071, sections 3.2 to 3.4, with the meaning that transformers gives to the fields of
rope_scaling, in float64. With PyTorch installed the numbers are also compared to transformers' own. Needs numpy.
"""

import importlib.util
import json
import math
import pathlib
from typing import Any

import numpy as np

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data" / "checkpoint" / "yarn_cases.json"

Config = dict[str, Any]


def case(head_dim: int, theta: float, max_position: int, **scaling: float | bool | None) -> Config:
    return {
        "head_dim": head_dim,
        "rope_theta": theta,
        "max_position_embeddings": max_position,
        "rope_scaling": {"rope_type": "yarn", **scaling},
    }


CASES = [
    case(128, 1e6, 131072, factor=4.0, original_max_position_embeddings=32768),  # Qwen 2.5 and 3
    case(64, 10000.0, 131072, factor=32.0, original_max_position_embeddings=4096),  # the paper's Llama 2
    case(64, 150000.0, 131072, factor=32.0, original_max_position_embeddings=4096, beta_fast=32.0, beta_slow=1.0,
         truncate=False),  # gpt-oss
    case(64, 10000.0, 163840, factor=40.0, original_max_position_embeddings=4096, mscale=1.0, mscale_all_dim=1.0),
    case(64, 10000.0, 163840, factor=40.0, original_max_position_embeddings=4096, mscale=0.707, mscale_all_dim=1.5),
    case(96, 500000.0, 65536, factor=8.0, original_max_position_embeddings=8192, attention_factor=1.5, beta_fast=16.0,
         beta_slow=2.0),
    case(80, 10000.0, 32768, factor=None, original_max_position_embeddings=8192),  # the factor is 32768 / 8192
    case(32, 10000.0, 2048, factor=2.0),  # stretches what max_position_embeddings says
    case(64, 10000.0, 2048, factor=0.5, original_max_position_embeddings=2048),  # shrinks: no factor of magnitude
    case(16, 100.0, 256, factor=4.0, original_max_position_embeddings=64),  # the ramp reaches both ends
]


def magnitude(factor: float, weight: float = 1.0) -> float:
    return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0


def yarn(config: Config) -> tuple[list[float], float]:
    dims, theta, scaling = config["head_dim"], config["rope_theta"], config["rope_scaling"]
    context = scaling.get("original_max_position_embeddings", config["max_position_embeddings"])
    factor = scaling.get("factor") or config["max_position_embeddings"] / context

    # The wavelength of pair d is 2 pi theta^(2d/dims); it turns context / wavelength times over the context.
    def pair_of(turns: float) -> float:
        return float(dims * math.log(context / (2 * math.pi * turns)) / (2 * math.log(theta)))

    low, high = pair_of(scaling.get("beta_fast", 32)), pair_of(scaling.get("beta_slow", 1))
    if scaling.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dims - 1)
    pairs = np.arange(dims // 2, dtype=np.float64)
    interpolated = np.clip((pairs - low) / max(high - low, 1e-3), 0, 1)
    frequency = theta ** (-2 * pairs / dims)
    blended = frequency / factor * interpolated + frequency * (1 - interpolated)

    attention = scaling.get("attention_factor")
    if attention is None and scaling.get("mscale") and scaling.get("mscale_all_dim"):
        attention = magnitude(factor, scaling["mscale"]) / magnitude(factor, scaling["mscale_all_dim"])
    return [float(x) for x in blended], magnitude(factor) if attention is None else attention


def check_with_transformers(config: Config, inv_freq: list[float], attention: float) -> None:
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    context = config["max_position_embeddings"]
    parameters = {
        "original_max_position_embeddings": context,
        "factor": None,
        **config["rope_scaling"],
        "rope_theta": config["rope_theta"],
    }
    llama = LlamaConfig(
        hidden_size=4 * config["head_dim"],
        num_attention_heads=4,
        head_dim=config["head_dim"],
        max_position_embeddings=context,
        rope_parameters=parameters,
    )
    theirs, factor = ROPE_INIT_FUNCTIONS["yarn"](llama, None)
    np.testing.assert_allclose(np.array(theirs), inv_freq, rtol=2e-6)
    np.testing.assert_allclose(factor, attention, rtol=1e-12)


def main() -> None:
    compare = importlib.util.find_spec("torch") is not None
    golden = []
    for config in CASES:
        inv_freq, attention = yarn(config)
        if compare:
            check_with_transformers(config, inv_freq, attention)
        golden.append({"config": config, "inv_freq": inv_freq, "attention_factor": attention})
    OUT.write_text(json.dumps(golden, indent=1) + "\n", encoding="utf-8")
    print(len(golden), "cases,", "compared with transformers" if compare else "not compared: PyTorch is not installed")


if __name__ == "__main__":
    main()
