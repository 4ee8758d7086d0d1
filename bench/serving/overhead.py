#!/usr/bin/env python3
"""What serving costs beside computing: 64 streams of a model whose steps cost next to nothing, quire and llama-server in turn.

1. quire at full speed: tokens a second that reach the clients. (It must be 15,000 or more.)
2. quire with steps paced to half of that figure, 7,500 tokens a second: time from the engine's hand-over of a token to the client's read of it.
   (Its p99 must be below 5 ms.) The engine's side of the times comes from the runner of quire_faulty_server, on the same monotonic clock.
3. llama-server, same model file, clients and machine, at full speed.

Usage: overhead.py --model tiny.gguf [--llama-server PATH] [--rounds 3]   (tests/reliability/make_tiny_model.py writes the model)
Build first: ninja -C build/release quire quire_faulty_server quire_overhead_client
"""

import argparse
import contextlib
import json
import os
import pathlib
import platform
import statistics
import subprocess
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]


@contextlib.contextmanager
def running(command, port):
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen([str(word) for word in command], stdout=log, stderr=log)
        try:
            for _ in range(600):
                with contextlib.suppress(OSError):
                    if urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).status == 200:
                        break
                if process.poll() is not None:
                    log.seek(0)
                    raise SystemExit(f"{command[0]} ended: {log.read()[-1500:].decode()}")
                time.sleep(0.1)
            yield process
        finally:
            process.kill()
            process.wait()


def cpu_seconds(process):
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(args, command, port, *client):
    with running(command, port) as process:
        before = cpu_seconds(process)
        client = [ROOT / args.build / "bench/quire_overhead_client", "--port", port, "--clients", args.clients, "--seconds", args.seconds, *client]
        out = subprocess.run([str(word) for word in client], capture_output=True, text=True, check=False)
        if out.returncode:
            raise SystemExit(out.stderr)
        result = json.loads(out.stdout)
        result["server_cpu_percent"] = 100 * (cpu_seconds(process) - before) / (args.seconds + 1)
        return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--llama-server")
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--port", type=int, default=21490)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    quire = ["--served-model-name", "m", "--host", "127.0.0.1", "--port", args.port, "--disable-access-log", "--log-level", "warning"]
    faulty = ROOT / args.build / "tests/quire_faulty_server"
    interval = round(args.clients / 7500 * 1e6)
    kinds = {"quire, full speed": [], "quire, 7,500 tokens/s": []}
    if args.llama_server:
        kinds["llama-server, full speed"] = []
    for _ in range(args.rounds):  # in turn, so that the machine's moods meet all of them
        kinds["quire, full speed"].append(measure(args, [ROOT / args.build / "quire", "serve", args.model, *quire], args.port))
        with tempfile.NamedTemporaryFile(prefix="quire-handover-", dir="/dev/shm") as times:
            command = [faulty, "--step-interval-us", interval, "--handover", times.name, args.model, *quire]
            kinds["quire, 7,500 tokens/s"].append(measure(args, command, args.port, "--handover", times.name))
        if args.llama_server:
            command = [args.llama_server, "-m", args.model, "--port", args.port, "-np", args.clients, "-c", args.clients * 1024, "--log-disable",
                       "-t", os.cpu_count()]
            kinds["llama-server, full speed"].append(measure(args, command, args.port))
    print(f"{args.clients} streams of 512 tokens, median of {args.rounds} rounds of {args.seconds:g} s, {os.cpu_count()} cores, {platform.processor() or 'CPU'}, "
          f"load average {os.getloadavg()[0]:.1f} at the end\n")
    print("| server | tokens/s | first token p50 / p99, ms | between tokens p50 / p99, ms | hand-over to read p50 / p99, ms | server's CPU |")
    print("|---|---|---|---|---|---|")
    for name, runs in kinds.items():
        def middle(key):
            return statistics.median(run[key] for run in runs)

        late = f"{middle('handover_ms_p50'):.2f} / {middle('handover_ms_p99'):.2f}" if "handover_ms_p50" in runs[0] else "-"
        print(f"| {name} | {middle('tokens_per_s'):,.0f} | {middle('ttft_ms_p50'):.1f} / {middle('ttft_ms_p99'):.1f} | "
              f"{middle('itl_ms_p50'):.2f} / {middle('itl_ms_p99'):.2f} | {late} | {middle('server_cpu_percent'):.0f} % |", flush=True)


if __name__ == "__main__":
    main()
