#!/usr/bin/env python3
"""Plants typical faults in the GPU's kernels, one at a time, and tells which of them the emulator's tests notice.

usage: mutate_gpu.py [--list] [NAME...]   (all faults, or those named)

Works on a copy of the tree in a scratch folder, as mutate_attention.py does: a fault is a text in one file, exact but for white
space, and what takes its place. Exits 1 if a fault goes unnoticed, 2 if the tests fail without one. Takes some minutes a fault on two
idle cores: not part of CI.
"""

import sys

from mutation import Fault, Suite, main

# Tests that reach every fault, with few cases.
TESTS = "--gtest_filter=Emulator.*:GpuAttention.Random*:GpuAttention.Padding*:GpuSample.Random*:Rows.RmsNorm*:GpuKvWrite.R*:*SmallRows.Products*"
PROGRAMS = [f"emulated{wave}_test" for wave in (32, 64)]
SUITE = Suite(preset="emulator", targets=PROGRAMS, programs=[[f"build/emulator/tests/emulator/{name}", TESTS] for name in PROGRAMS],
              seconds=600, environment={"QUIRE_TEST_SHARE": "16", "QUIRE_TEST_BATCHES": "40"})

WAVE = "src/gpu/wave.h"
GENERAL = "src/kernels/attention/gpu/general.cu"
DECODE = "src/kernels/attention/gpu/decode.cu"
EXTEND = "src/kernels/attention/gpu/extend.cu"
SELECT = "src/kernels/sample/gpu/select.h"
MATRIX = "src/gpu/matrix.h"

FAULTS = [
    # Waves of 64 lanes taken for 32.
    Fault("mask-of-32-lanes", SELECT, "shuffle(sum, (lane - distance) & (kWave - 1))", "shuffle(sum, (lane - distance) & 31)"),
    Fault("shuffle-width-32", WAVE, "return __shfl_xor(value, mask, kWave);", "return __shfl_xor(value, mask, 32);"),
    Fault("sum-of-32-lanes", "src/kernels/sample/gpu/chunk.h",
          "for (int mask = kWave / 2; mask > 0; mask /= 2) value += shuffle_xor(value, mask);",
          "for (int mask = 16; mask > 0; mask /= 2) value += shuffle_xor(value, mask);"),
    # Barriers.
    Fault("no-barrier-in-sum", WAVE, "scratch[threadIdx.x / kWave] = value; __syncthreads(); float sum",
          "scratch[threadIdx.x / kWave] = value; float sum"),
    Fault("no-barrier-before-reuse", WAVE, "value = wave_sum(value); __syncthreads();", "value = wave_sum(value);"),
    Fault("no-barrier-after-tile", "src/kernels/kv_write/gpu/kv_write.cu", "__syncthreads(); store_tile<C>", "store_tile<C>"),
    Fault("no-barrier-in-extend", EXTEND, "wait_for_copies<0>(); __syncthreads();", "wait_for_copies<0>();"),
    Fault("no-wave-barrier", DECODE, "wait_for_copies<kStages - 2>(); __syncwarp();", "wait_for_copies<kStages - 2>();"),
    Fault("barrier-in-branch", "src/kernels/kv_write/gpu/kv_write.cu", "__syncthreads(); store_tile<C>",
          "if (token < args.m) __syncthreads(); store_tile<C>"),
    # Copies behind the thread's back.
    Fault("copies-waited-for-late", DECODE, "wait_for_copies<kStages - 2>();", "wait_for_copies<kStages - 1>();"),
    # Matrix instructions.
    Fault("row-map-off-by-one", "tests/emulator/matrix.cc", "const int row = group + (i % 2) * 8,", "const int row = group + (i % 2) * 7,"),
    Fault("mfma-row-off-by-one", MATRIX, "return 8 * group_of_depth(line) + 4 * tile + element_of_depth(line);",
          "return 8 * group_of_depth(line) + 4 * tile + (element_of_depth(line) + 1) % 4;"),
    Fault("mfma-depth-off-by-one", MATRIX, "{ return 4 * group + e; }", "{ return 4 * group + (e + 1) % 4; }"),
    Fault("no-barrier-in-matrix-attention", "src/kernels/attention/gpu/matrix_attention.h", "load_and_store(first); } sync_team();",
          "load_and_store(first); }"),
    # Shared memory.
    Fault("shared-overrun", GENERAL, "kStates * (kKeys + 2)); }", "kStates * (kKeys + 1) - 4); }"),
    Fault("tile-overrun", "src/kernels/kv_write/gpu/kv_write.cu", "return (dim + 31) / 32 * 32 + 4;", "return dim;"),
]

if __name__ == "__main__":
    sys.exit(main("Do the emulator's tests notice faults in the GPU's kernels?", FAULTS, SUITE))
