"""quire and its peers on the CPU behind one interface: the seconds that a measure takes."""

import dataclasses
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
from typing import Protocol

DECODES = 64  # of one request, behind an empty context
DEEP_DECODES = 32  # behind a context


@dataclasses.dataclass(frozen=True)
class Measure:
    """BATCH prompts of INPUT tokens get OUTPUT tokens each; of a decode behind a context only the time after the first token counts."""

    name: str
    batch: int
    input: int
    output: int
    behind_context: bool = False

    @property
    def tokens(self) -> int:
        """What its rate counts."""
        if self.behind_context:
            return self.output - 1
        return self.input if self.output == 1 else self.batch * self.output


MEASURES = [
    Measure("prefill 512", 1, 512, 1),
    Measure("prefill 2,048", 1, 2048, 1),
    Measure("decode at 0", 1, 1, DECODES),
    Measure("decode at 2,048", 1, 2048, DEEP_DECODES + 1, behind_context=True),
    Measure("batch 8, 32 in, 128 out", 8, 32, 128),
]


class Peer(Protocol):
    name: str

    def seconds(self, measure: Measure) -> float: ...


class Quire:
    """The program itself; one process for each measure, which warms up first."""

    def __init__(self, program: str, model: str, threads: int, prefix: list[str], runs: int) -> None:
        self.name = "quire"
        self.command = [*prefix, program, "bench", "latency", "--device", "cpu", "--model", model, "--threads", str(threads)]
        self.runs = runs

    def latency(self, batch: int, length: int, tokens: int, *more: str) -> dict[str, object]:
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "latency.json"
            command = [*self.command, "--batch-size", str(batch), "--input-len", str(length), "--output-len", str(tokens)]
            command += ["--num-iters-warmup", "1", "--num-iters", str(self.runs), "--output-json", str(out), *more]
            run(command)
            result: dict[str, object] = json.loads(out.read_text(encoding="utf-8"))
            return result

    def seconds(self, measure: Measure) -> float:
        result = self.latency(measure.batch, measure.input, measure.output, *(["--breakdown"] if measure.behind_context else []))
        if measure.behind_context:
            decode: dict[str, float] = result["breakdown"]["decode"]  # type: ignore[index]
            return decode["seconds"] / decode["steps"] * measure.tokens
        latencies: list[float] = result["latencies"]  # type: ignore[assignment]
        return statistics.median(latencies)


class LlamaCpp:
    """llama.cpp's own benchmarks, from the folder it was built in."""

    def __init__(self, name: str, build: pathlib.Path, model: str, threads: int, prefix: list[str], runs: int) -> None:
        self.name = name
        self.programs, self.prefix, self.runs = build / "bin", prefix, runs
        self.options = ["-m", model, "-t", str(threads)]

    def seconds(self, measure: Measure) -> float:
        if measure.batch > 1:
            return self.batch(measure)
        tokens = measure.tokens
        what = ["-p", str(tokens), "-n", "0"] if measure.output == 1 else ["-p", "0", "-n", str(tokens)]
        if measure.behind_context:
            what += ["-d", str(measure.input)]
        runs = 1 if measure.behind_context else self.runs  # each one fills the context first
        out = run([*self.prefix, str(self.programs / "llama-bench"), *self.options, *what, "-r", str(runs), "-o", "json"])
        nanoseconds: list[float] = json.loads(out)[0]["samples_ns"]
        return statistics.median(nanoseconds) / 1e9

    def batch(self, measure: Measure) -> float:
        total = measure.batch * (measure.input + measure.output)
        command = [str(self.programs / "llama-batched-bench"), *self.options, "-c", str(total), "-b", "2048", "-npp", str(measure.input)]
        command += ["-ntg", str(measure.output), "-npl", str(measure.batch), "--output-format", "jsonl"]
        for line in run([*self.prefix, *command]).splitlines():
            if line.startswith("{"):
                return float(json.loads(line)["t"])
        sys.exit(f"{command[0]} printed no result")


class PythonPeer:
    """A library behind python_peer.py; it stays loaded from one measure to the next."""

    def __init__(self, name: str, python: str, library: str, folder: pathlib.Path, threads: int, prefix: list[str], *more: str) -> None:
        self.name = name
        script = str(pathlib.Path(__file__).with_name("python_peer.py"))
        self.command = [*prefix, "env", f"OMP_NUM_THREADS={threads}", python, script, library, str(folder), "--threads", str(threads), *more]
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.version = self.answer()
        self.ask(1, 8, 2)  # warms up

    def answer(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        if not line:
            sys.exit(f"{self.name} has ended; run by hand: {' '.join(self.command)}")
        return line

    def ask(self, batch: int, length: int, tokens: int) -> tuple[float, float]:
        """Seconds: in all, and since the first token."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{batch} {length} {tokens}\n")
        self.process.stdin.flush()
        total, since_first = map(float, self.answer().split())
        return total, since_first

    def seconds(self, measure: Measure) -> float:
        total, since_first = self.ask(measure.batch, measure.input, measure.output)
        return since_first if measure.behind_context else total

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def run(command: list[str]) -> str:
    """Its standard output; what it says elsewhere is shown if it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed ({done.returncode}):\n{done.stderr[-2000:]}")
    return done.stdout
