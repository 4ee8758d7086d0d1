"""tools/hip_report.py: kernels are read from the compiler's notes, and what is not as expected is said."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import hip_report  # noqa: E402
from hip_report import Code, Kernel  # noqa: E402

# As llvm-readelf --notes prints them: the list of kernels is neither first nor last, and an argument may be called .name too.
NOTES = """Displaying notes found in: .note
    AMDGPU Metadata:
        ---
amdhsa.kernels:
  - .agpr_count:     0
    .args:
      - .address_space:  global
        .name:           x.coerce
        .size:           8
      - .size:           4
    .group_segment_fixed_size: 512
    .name:           _Z3onev
    .private_segment_fixed_size: 0
    .sgpr_spill_count: 3
    .vgpr_spill_count: 0
  - .args:           []
    .group_segment_fixed_size: 70000
    .name:           _Z3twov
    .private_segment_fixed_size: 148
    .sgpr_spill_count: 0
    .vgpr_spill_count: 62
amdhsa.target:   amdgcn-amd-amdhsa--gfx942
amdhsa.version:
  - 1
  - 2
...
"""
ONE = Kernel("_Z3onev", 0, 3, 0, 512)
TWO = Kernel("_Z3twov", 62, 0, 148, 70000)
EXPECTED = {"src/a/*.cu": {"no_scratch": ("gfx90a", "gfx942")}, "src/a/m.cu": {"matrix": ("gfx90a", "gfx942"), "fp8": ("gfx942",)}}


class HipReport(unittest.TestCase):
    def problems(self, source, architecture, kernels, matrix=0, fp8=0):
        return hip_report.problems_of(Code(source, architecture, kernels, matrix, fp8), EXPECTED)

    def test_kernels(self):
        self.assertEqual(hip_report.kernels_of(NOTES), [ONE, TWO])
        self.assertEqual(hip_report.kernels_of(""), [])

    def test_what_is_expected_is_no_problem(self):
        self.assertEqual(self.problems("src/a/m.cu", "gfx942", [ONE], 8, 4), [])
        self.assertEqual(self.problems("src/a/m.cu", "gfx90a", [ONE], 8, 0), [])
        self.assertEqual(self.problems("src/b/x.cu", "gfx90a", [Kernel("x", 5, 5, 20, 65536)]), [])

    def test_problems(self):
        scratch, lds = self.problems("src/a/x.cu", "gfx90a", [ONE, TWO])
        self.assertIn("1 of 2 kernels use scratch memory, most of all _Z3twov: 148 bytes a lane, 62 vector registers", scratch)
        self.assertIn("_Z3twov takes 70000 bytes of LDS", lds)
        self.assertEqual(self.problems("src/a/m.cu", "gfx90a", [ONE]), ["no matrix instruction"])
        self.assertEqual(self.problems("src/a/m.cu", "gfx942", [ONE], 8), ["no matrix instruction with 8-bit floats"])

    def test_what_is_expected_of_nothing(self):
        code = Code("src/a/x.cu", "gfx90a", [])
        self.assertEqual(hip_report.without_code([code], EXPECTED), ["src/a/m.cu: there is no code of it"])
        self.assertEqual(hip_report.without_code([code, Code("src/a/m.cu", "gfx90a", [])], EXPECTED), [])


if __name__ == "__main__":
    unittest.main()
