"""tools/check_metadata.py on small sources whose dead fields are known."""

import contextlib
import io
import json
import pathlib
import re
import shutil
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import check_metadata  # noqa: E402

HEADER = """#pragma once
INCLUDES
namespace fmt { template <class... T> void print(const char*, const T&...) {} }
struct Part { int p = 0; };
struct Batch { FIELDS };
"""

# Fields, the body of use.cc, and the fields that are dead.
CASES = {
    "a field that is read": ("int x = 0;", "void w(Batch& b) { b.x = 1; } int r(const Batch& b) { return b.x; }", []),
    "a field that is only written": ("int x = 0;", "void w(Batch& b) { b.x = 1; }", ["x"]),
    "a field that nobody touches": ("int x = 0;", "", ["x"]),
    "read by its only writer": ("int x = 0;", "int w(Batch& b) { b.x = 1; return b.x; }", ["x"]),
    "read by one of two writers": ("int x = 0;", "int w(Batch& b) { b.x = 1; return b.x; } void v(Batch& b) { b.x = 2; }", []),
    "read in a log call": ("int x = 0;", "int r(const Batch& b) { fmt::print(\"\", b.x); return 0; }", ["x"]),
    "read in an assert": ("int x = 0;", "#include <cassert>\nint r(const Batch& b) { assert(b.x == 0); return 0; }", ["x"]),
    "written by aggregates": ("int x = 0, y = 0;", "Batch w() { return {1, 2}; } int r(const Batch& b) { return b.x; }", ["y"]),
    "written by name in an aggregate": ("int x = 0, y = 0;", "Batch w() { return {.x = 1, .y = 2}; } int r(const Batch& b) { return b.x; }", ["y"]),
    "an aggregate that is passed on": ("int x; int y;", "void w(std::vector<Batch>& v) { v.push_back({1, 2}); } int r(const Batch& b) { return b.y; }", ["x"]),
    "the whole struct copied": ("int x = 0;", "void w(Batch& b, const Batch& c) { b = c; Batch d = b; (void)d; }", ["x"]),
    "a compound assignment is no read": ("int x = 0;", "void w(Batch& b) { b.x += 1; b.x++; --b.x; } void v(Batch& b) { b.x = 0; }", ["x"]),
    "unless its value is used": ("int x = 0;", "int w(Batch& b) { return b.x++; } void v(Batch& b) { b.x = 0; }", []),
    "a container that is only filled": ("std::vector<int> x;", "void w(Batch& b) { b.x.clear(); b.x.push_back(1); b.x[0] = 2; }", ["x"]),
    "a container that is looked into": ("std::vector<int> x;", "void w(Batch& b) { b.x.push_back(1); } int r(const Batch& b) { return b.x[0]; }", []),
    "a part that is written": ("Part x;", "void w(Batch& b) { b.x.p = 1; }", ["x"]),
    "a part that is read": ("Part x;", "void w(Batch& b) { b.x.p = 1; } int r(const Batch& b) { return b.x.p; }", []),
    "filled in by a callee": ("Part x;", "void f(Part& p) { p.p = 1; } void w(Batch& b) { f(b.x); }", ["x"]),
    "read by a callee": ("Part x;", "int f(const Part& p) { return p.p; } int r(const Batch& b) { return f(b.x); }", []),
    "memory behind a pointer": ("int* x = nullptr;", "int r(const Batch& b) { b.x[0] = 1; return 0; }", []),
    "a reference that is passed on": ("Part& x = *new Part;", "void f(Part& p) { p.p = 1; } int r(const Batch& b) { f(b.x); return 0; }", []),
    "a lambda reads for its function": ("int x = 0;", "int w(Batch& b) { b.x = 1; return [&] { return b.x; }(); }", ["x"]),
    "a template reads": ("int x = 0;", "template <class T> int r(const T& t) { return t.x + 1; } int s(const Batch& b) { return r(b); }", []),
    "a template reads a field of that name in another struct": (
        "int x = 0; Part y;",
        "struct Other { int x; };\n"
        "template <class T> struct K { struct Job { const Other& o; const Batch& b; };\n"
        "static int f(const Job& job) { return job.o.x + job.b.y.p; } };\n"
        "int r(const Batch& b) { return K<int>::f({Other{1}, b}); }", ["x"]),
    "a template writes": ("int x = 0;", "template <class T> void w(T& t) { t.x = 1; } void s(Batch& b) { w(b); }", ["x"]),
    "a function is no metadata": ("void (*x)() = nullptr; int y = 0;", "", ["y"]),
    "a getter that is called": ("int x() const { return x_; } private: int x_ = 0;", "int r(const Batch& b) { return b.x(); }", []),
    "a getter that is not": ("int x() const { return x_; } private: int x_ = 0;", "", ["x_"]),
    "a reader that nobody calls": ("int x = 0;", "int lost(const Batch& b) { return b.x; }", ["x"]),
}
# Functions that return something have a caller, as readers should.
CALLED = re.compile(r"int ([rsw])\((?:const )?Batch& b\)")


NVCC = shutil.which("nvcc")


def run(folder: pathlib.Path, fields: str, body: str, *arguments: str, path: str = "src/use.cc",
        flags: str = "") -> tuple[int, str, str]:
    root = folder.resolve()
    source = root / path
    source.parent.mkdir(parents=True, exist_ok=True)
    (root / "src").mkdir(exist_ok=True)
    includes = "#include <vector>" if "std::vector" in fields + body else ""
    header = HEADER.replace("INCLUDES", includes).replace("FIELDS", fields)
    (root / "src" / "batch.h").write_text(header, encoding="utf-8")
    calls = "".join(f" (void){name}(b);" for name in CALLED.findall(body))
    source.write_text(f'#include "batch.h"\n{body}\nint main() {{ Batch b{{}}; (void)b;{calls} }}\n', encoding="utf-8")
    command = f"c++ -std=c++20 -DNDEBUG -Wshadow=local -fno-such-flag {flags} -I{root}/src -o use.o -c {source}"
    entry = {"directory": str(root), "file": str(source), "command": command}
    (root / "compile_commands.json").write_text(json.dumps([entry]), encoding="utf-8")
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = check_metadata.main(["--build", str(root), "--root", str(root), "--struct", "Batch", "--files", "none/*",
                                    *arguments])
    return code, out.getvalue(), err.getvalue()


class CheckMetadata(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_cases(self):
        for name, (fields, body, dead) in CASES.items():
            with self.subTest(name):
                code, _, err = run(self.folder, fields, body)
                found = [line.split()[0] for line in err.splitlines() if "has no reader" in line]
                self.assertEqual(found, [f"Batch::{field}" for field in dead], err)
                self.assertEqual(code, 1 if dead else 0, err)

    def test_names_the_writers(self):
        _, _, err = run(self.folder, "int x = 0;", "struct S { void one(Batch& b) { b.x = 1; } }; void two(Batch& b) { b.x = 2; }")
        self.assertIn("Batch::x has no reader; written by S::one, two\n", err)
        for aggregate in ("{1}", "{.x = 1}"):
            _, _, err = run(self.folder, "int x = 0;", f"Batch w() {{ return {aggregate}; }}")
            self.assertIn("Batch::x has no reader; written by w\n", err)

    def test_a_check_is_no_reader(self):
        code, _, _ = run(self.folder, "int x = 0;", "int r(const Batch& b) { return b.x; }", path="src/attention/check.cc")
        self.assertEqual(code, 1)

    @unittest.skipIf(NVCC is None, "there is no nvcc, so no CUDA headers")
    def test_a_kernel_reads(self):
        assert NVCC is not None
        flags = f"-isystem={pathlib.Path(NVCC).resolve().parents[1]}/include"
        kernel = "__global__ __launch_bounds__(128) void kernel(Batch b, int* out) { out[threadIdx.x] += b.x; __syncthreads(); }\n"
        launch = "void start(void (*kernel)(Batch, int*)) {}\nint w(Batch& b) { b.x = b.y = 1; start(kernel); return 0; }"
        code, _, err = run(self.folder, "int x = 0, y = 0;", kernel + launch, path="src/use.cu", flags=flags)
        self.assertEqual(code, 1, err)
        self.assertIn("1 without a reader", err)
        self.assertIn("Batch::y has no reader; written by w\n", err)
        code, _, err = run(self.folder, "int x = 0;", kernel + "int w(Batch& b) { b.x = 1; return 0; }", path="src/use.cu", flags=flags)
        self.assertIn("Batch::x has no reader", err)  # a kernel that nobody launches

    def test_a_struct_that_is_gone_is_an_error(self):
        code, _, err = run(self.folder, "int x = 0;", "int r(const Batch& b) { return b.x; }", "--struct", "Gone")
        self.assertEqual(code, 2)
        self.assertIn("Gone", err)

    def test_a_source_that_does_not_parse_is_an_error(self):
        code, _, err = run(self.folder, "int x = 0;", "int r(const Batch& b) { return b.y; }")
        self.assertEqual(code, 2)
        self.assertIn("use.cc", err)

    def test_the_table_in_a_document(self):
        body = "void w(Batch& b) { b.x = 1; } int r(const Batch& b) { return b.x; }"
        document = self.folder / "doc.md"
        document.write_text("before\n<!-- metadata table -->\nold\n<!-- end of metadata table -->\nafter\n", encoding="utf-8")
        self.assertEqual(run(self.folder, "int x = 0;", body, "--check", str(document))[0], 1)
        self.assertEqual(run(self.folder, "int x = 0;", body, "--update", str(document))[0], 0)
        text = document.read_text(encoding="utf-8")
        self.assertIn("| `Batch::x` | `w`, default | `r` |\n", text)
        self.assertTrue(text.startswith("before\n") and text.endswith("\nafter\n"), text)
        self.assertEqual(run(self.folder, "int x = 0;", body, "--check", str(document))[0], 0)
        document.write_text("no markers\n", encoding="utf-8")
        self.assertEqual(run(self.folder, "int x = 0;", body, "--check", str(document))[0], 2)


if __name__ == "__main__":
    unittest.main()
