#!/usr/bin/env python3
"""Prints the table of compare_clients.sh from its result files: medians over the rounds, and how far apart rounds of one client are.

usage: client_table.py FOLDER   (files CLIENT-BACKEND-DATASET-ROUND.json)
"""

import collections
import json
import pathlib
import statistics
import sys

COLUMNS = {
    "duration": "duration s",
    "total_input_tokens": "input tokens",
    "total_output_tokens": "output tokens",
    "output_throughput": "output tok/s",
    "median_ttft_ms": "median TTFT ms",
    "median_tpot_ms": "median TPOT ms",
    "median_itl_ms": "median ITL ms",
    "median_e2el_ms": "median E2EL ms",
}


def main() -> int:
    runs = collections.defaultdict(list)
    for path in sorted(pathlib.Path(sys.argv[1]).glob("*.json")):
        client, *backend, dataset, _ = path.stem.split("-")
        result = json.loads(path.read_text(encoding="utf-8"))
        if result["failed"]:
            print(f"{path.name}: {result['failed']} requests failed", file=sys.stderr)
            return 1
        runs["-".join(backend), dataset, client].append(result)
    print("| backend | prompts | client | " + " | ".join(COLUMNS.values()) + " |")
    print("|---" * (3 + len(COLUMNS)) + "|")
    for (backend, dataset, client), results in sorted(runs.items()):
        cells = []
        for key in COLUMNS:
            values = [r[key] for r in results]
            middle = statistics.median(values)
            text = f"{middle:.0f}" if isinstance(middle, int) or key.startswith("total") else f"{middle:.2f}"
            spread = max(values) - min(values)
            cells.append(text if spread < 0.005 else f"{text} ({min(values):.4g} to {max(values):.4g})")
        name = "quire, at llama-server" if client == "llama" else client
        print(f"| {backend} | {dataset} | {name} | " + " | ".join(cells) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
