#!/usr/bin/env python3
"""Runs the fault scenarios against the built server and prints one table.

Usage: run.py --tiny-model FILE.gguf [--text-model FILE.gguf] [--build DIR] [--quick] [--list] [SCENARIO ...]
tools/reliability.sh builds what is needed and calls this.
"""

import argparse
import asyncio
import os
import pathlib
import sys
import time
import traceback

import client_faults
import engine_faults
import engine_load
import process_faults
from harness import ROOT, Context, Report

ALL = client_faults.SCENARIOS + engine_load.SCENARIOS + process_faults.SCENARIOS + engine_faults.SCENARIOS


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenarios", nargs="*", help="names; all if none is given")
    parser.add_argument("--tiny-model", help="of make_tiny_model.py")
    parser.add_argument("--text-model", default=os.environ.get("QUIRE_TEST_MODEL"), help="a real one, for what is about text; default QUIRE_TEST_MODEL")
    parser.add_argument("--build", default=str(ROOT / "build/release"))
    parser.add_argument("--quick", action="store_true", help="the short form of each scenario")
    parser.add_argument("--port", type=int, default=21400, help="first of 90")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--markdown", help="file for the table")
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    known = {scenario.__name__: scenario for scenario in ALL}
    if args.list:
        for name, scenario in known.items():
            print(f"{name:20} {scenario.__doc__.strip()}")
        return 0
    for name in args.scenarios:
        if name not in known:
            parser.error(f"no scenario {name}; --list shows them")
    if not args.tiny_model:
        parser.error("--tiny-model is needed")
    report = Report()
    context = Context(args, report)
    for name in args.scenarios or known:
        report.scenario = name
        print(f"{name}: {known[name].__doc__.strip()}", flush=True)
        start = time.monotonic()
        context.random.seed(args.seed)
        try:
            asyncio.run(known[name](context))
        except Exception:  # pylint: disable=broad-except
            traceback.print_exc()
            report.check("scenario ran", traceback.format_exc().strip().splitlines()[-1][:200], "to its end", False)
        print(f"  {time.monotonic() - start:.0f} s", flush=True)
    if args.markdown:
        pathlib.Path(args.markdown).write_text(report.markdown(), encoding="utf-8")
    failed = [row for row in report.rows if not row["pass"]]
    print(f"{len(report.rows)} figures, {len(failed)} beyond their limit")
    for row in failed:
        print(f"  {row['scenario']}: {row['figure']}: {row['value']} (limit {row['limit']})")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
