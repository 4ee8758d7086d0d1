#!/usr/bin/env python3
"""A picture of `quire bench latency --breakdown`: for prefill and decode, where the time of a step goes and how near each op is to its limit.

usage: plot_breakdown.py OUT.svg NAME=LATENCY.json ...

A bar for each phase of each file; the dark part of an op's share is the time that the machine's limit leaves it, the rest is what could
still be gained. Needs nothing but Python.
"""

import argparse
import html
import json
import pathlib
from typing import Any

WIDTH, LEFT, RIGHT, TOP = 1000, 230, 20, 54
ROW, BAR, BELOW = 74, 26, 20
LEAST_SHARE = 0.012  # of a phase: smaller ops are one
COLORS = {
    "qkv": "#2f6f9f", "o": "#4f94c4", "gate_up": "#1f7a5c", "down": "#3fa27f", "head": "#8a6fb0", "attention": "#c4693d", "norm": "#a8912f",
    "rope, KV write": "#8c7a52", "activation": "#b9852f", "sampling": "#b04a6a", "other": "#7b8794",
}  # fmt: skip


def segments(phase: dict[str, Any]) -> list[tuple[str, float, float]]:
    """Name, share of the phase, share of the op's limit (0 where there is none)."""
    parts, other = [], 0.0
    for op in phase["ops"]:
        share = op["seconds"] / phase["seconds"]
        if share < LEAST_SHARE or op["op"] not in COLORS:
            other += share
        else:
            parts.append((op["op"], share, op["limit_share"]))
    return [*parts, ("other", other, 0.0)]


def bar(label: str, phase: dict[str, Any], y: float) -> list[str]:
    ms = phase["seconds"] / phase["steps"] * 1e3
    rows = phase["rows"] / phase["steps"]
    out = [
        f'<text x="{LEFT - 12}" y="{y + 12}" class="end head">{html.escape(label)}</text>',
        f'<text x="{LEFT - 12}" y="{y + 27}" class="end small">{rows:,.0f} rows, {ms:.2f} ms a step</text>',
    ]
    x: float = LEFT
    for name, share, limit in segments(phase):
        width = share * (WIDTH - LEFT - RIGHT)
        color, title = COLORS[name], f"{name}: {share:.1%} of the time"
        if limit > 0:
            title += f", {limit:.0%} of its limit"
        out.append(f'<g><title>{html.escape(title)}</title><rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{BAR}" fill="{color}" '
                   'fill-opacity="0.45"/>')
        out.append(f'<rect x="{x:.1f}" y="{y}" width="{width * min(limit, 1):.1f}" height="{BAR}" fill="{color}"/></g>')
        middle = x + width / 2
        if width > 7 * len(name):
            out.append(f'<text x="{middle:.1f}" y="{y + BAR + 13}" class="mid small">{html.escape(name)}</text>')
        if width > 28:
            figure = f"{share:.0%}"
            out.append(f'<text x="{middle:.1f}" y="{y + BAR + 26}" class="mid small">{figure}</text>')
        x += width
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("files", nargs="+", metavar="NAME=LATENCY.json")
    args = parser.parse_args()
    bars: list[tuple[str, dict[str, Any]]] = []
    for item in args.files:
        name, _, path = item.partition("=")
        breakdown = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))["breakdown"]
        bars += [(f"{name}, {kind}", breakdown[kind]) for kind in ("prefill", "decode") if breakdown[kind]["steps"] > 0]
    height = TOP + len(bars) * ROW + BELOW
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img" '
        'aria-labelledby="title description">',
        '<title id="title">Where the time of a step goes</title>',
        '<desc id="description">Bars of the ops of prefill and decode steps; the dark part of each is the time at its limit.</desc>',
        "<style>text { font: 13px sans-serif; fill: #1f2933; } .small { font-size: 11px; fill: #52606d; } .head { font-weight: bold; } "
        ".mid { text-anchor: middle; } .end { text-anchor: end; }</style>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="22" class="head">Where the time of a step goes</text>',
        f'<text x="{LEFT}" y="39" class="small">share of the step below each op; dark: the time it would take at the limit that binds it</text>',
    ]
    for i, (label, phase) in enumerate(bars):
        lines += bar(label, phase, TOP + i * ROW)
    args.out.write_text("\n".join([*lines, "</svg>"]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
