"""tools/check_gpu_names.py: what is out of place is found, and nothing else."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import check_gpu_names  # noqa: E402

# Path, source, the names that are out of place.
CASES = [
    ("src/gpu/runtime.h", "check(cudaMalloc(&p, n)); __syncthreads();", []),
    ("src/gpu/memory_gpu.cc", "cudaMalloc(&p, n);", ["cudaMalloc"]),
    ("src/gpu/runtime_hip.cc", "hipError_t hipMalloc(void** p, size_t n) { return find()(p, n); }", []),
    ("src/gpu/memory_gpu.cc", "QUIRE_RUNTIME(Malloc)(&p, n);", []),
    ("src/engine/gpu_runner_gpu.cc", "QUIRE_RUNTIME(Malloc)(&p, n);", ["QUIRE_RUNTIME"]),
    ("src/kernels/norm/gpu/norm.cu", "hipDeviceSynchronize();", ["hipDeviceSynchronize"]),
    ("src/kernels/norm/gpu/norm.cu", "cuInit(0);", ["cuInit"]),
    ("src/kernels/norm/gpu/norm.cu", "__global__ void f() { __syncthreads(); x[threadIdx.x] = __ldg(p); atomicAdd(p, 1); }", []),
    ("src/kernels/norm/norm.cc", "__device__ int f();", ["__device__"]),
    ("src/attention/phased_gpu.cc", "\nint x = threadIdx.x;\natomicAdd(p, 1);", ["threadIdx", "atomicAdd"]),
    ("src/attention/phased_gpu.cc", "// cudaMalloc() is not called\nlog(\"cudaMalloc() __global__\"); current(1); custom(2);", []),
    ("src/kernels/norm/gpu/norm.cu", "#include <cuda_fp16.h>", ["cuda_fp16.h"]),
    ("src/gpu/numeric.h", "#include <cuda_fp16.h>", []),
    ("src/kernels/norm/gpu/norm.cu", "v = __shfl_xor_sync(~0u, v, 1);", ["__shfl_xor_sync"]),
    ("src/gpu/wave.h", "v = __shfl_xor_sync(~0u, v, 1);", []),
    ("tests/gpu_kernels/conversions.cu", "__global__ void f() {}", []),
    ("tests/emulator/wave.h", "T __shfl_xor(T v, int m); cudaMalloc(&p, n);", []),
    ("tests/gpu_kernels/rows_test.cc", "__global__ void f() {}", ["__global__"]),
]


class CheckGpuNames(unittest.TestCase):
    def test_cases(self):
        for path, text, names in CASES:
            with self.subTest(f"{path}: {text}"):
                found = check_gpu_names.misplaced(pathlib.Path(path), text)
                self.assertEqual([line.split(": ")[1] for line in found], names)

    def test_lines_are_counted(self):
        found = check_gpu_names.misplaced(pathlib.Path("src/base/x.cc"), "/* one\ntwo */\ncudaFree(p);")
        self.assertEqual(len(found), 1)
        self.assertTrue(found[0].startswith("src/base/x.cc:3: cudaFree: "), found)


if __name__ == "__main__":
    unittest.main()
