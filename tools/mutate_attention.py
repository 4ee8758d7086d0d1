#!/usr/bin/env python3
"""Plants typical faults in attention, one at a time, and tells which of them the tests notice.

usage: mutate_attention.py [--list] [NAME...]   (all faults, or those named)

Works on a copy of the tree in a scratch folder. A fault is a text in one file, exact but for white space, and what takes
its place; a text that is not there exactly once is an error, so faults are mended with the sources. Exits 1 if a fault goes unnoticed,
2 if the tests fail without one. Takes some 10 minutes on two idle cores: not part of CI.
"""

import sys

from mutation import Fault, Suite, main

TESTS = ["kvcache_test", "kernels_test", "attention_test"]
SUITE = Suite(preset="release", targets=TESTS, programs=[[f"build/release/tests/{name}"] for name in TESTS], seconds=900)

KERNEL = "src/kernels/attention/cpu/attention_kernel.h"
MERGE = "src/kernels/attention/cpu/merge_kernel.h"
PAGE = "src/kernels/attention/cpu/kv_page.h"
PLAN = "src/attention/phased_plan.cc"
RUN = "src/attention/phased.cc"
WRITE = "src/kernels/kv_write/kv_write.cc"

FAULTS = [
    Fault("window-one-more", KERNEL, "args.window > 0 ? newest - args.window : 0",
          "args.window > 0 ? newest - args.window - 1 : 0"),
    Fault("window-first-partition", "src/kernels/attention/attention.h",
          "position >= window ? position - window + 1 : 0", "position >= window ? position - window + 2 : 0"),
    Fault("causal-one-more", KERNEL, "position(state) + 1 - first_key", "position(state) + 2 - first_key"),
    Fault("partition-end", "src/kernels/attention/attention.h", "position / kPartitionKeys + 1}",
          "(position + kPartitionKeys - 1) / kPartitionKeys}"),
    Fault("chunk-end", PLAN, "const int32_t end = request.context_len / kPartitionKeys;",
          "const int32_t end = (request.context_len + 1) / kPartitionKeys;"),
    Fault("split-share", RUN, "(task.partitions + decodes.pieces - 1) / decodes.pieces",
          "task.partitions / decodes.pieces"),
    Fault("no-guard-in-weights", MERGE, "Isa::sub(x, Isa::max(max, Isa::set1(kLowest)))", "Isa::sub(x, max)"),
    Fault("no-guard-in-merge", MERGE, "if (std::isinf(from_max) && !std::isnan(from_sum)) continue;", ""),
    Fault("shuffle-strides-swapped", PAGE, "kElement : kPiece), pack_stride_(plain_ ? kPiece : kPiece * kv.block_size)",
          "kElement : kPiece * kv.block_size), pack_stride_(kPiece)"),
    Fault("shuffle-write-pack", WRITE, "to[d * pack_] = from[d]", "to[d] = from[d]"),
    Fault("offset-32-bit", "src/tensor/paged_kv.h",
          "return ((block * kv.block_size + slot) * kv.kv_heads + head) * kv.head_dim + dim;",
          "return static_cast<int32_t>(((block * kv.block_size + slot) * kv.kv_heads + head) * kv.head_dim + dim);"),
    Fault("offset-32-bit-shuffle", "src/tensor/paged_kv.h",
          "return (((block * kv.kv_heads + head) * (stored_head_dim(kv) / x) + dim / x) * kv.block_size + slot) * x + dim % x;",
          "return static_cast<int32_t>((((block * kv.kv_heads + head) * (stored_head_dim(kv) / x) + dim / x) * kv.block_size +"
          " slot) * x + dim % x);"),
    Fault("kv-len-one-more", RUN, "task.first_position = kv_len - 1;", "task.first_position = kv_len;"),
    Fault("kv-len-one-less", PLAN, "batch.kv_lens[r] - rows}", "batch.kv_lens[r] - rows - (rows > 1 ? 1 : 0)}"),
    Fault("stale-decodes", PLAN, "decodes_ = {};", ""),
    Fault("stale-tiles", PLAN, "if (!tiles_.empty()) tiles_.clear();", ""),
    Fault("stale-block-tables", RUN, "batch.block_table_rows[r] * batch.block_table_stride;",
          "static_cast<int64_t>(r) * batch.block_table_stride;"),
    Fault("sink-twice", MERGE, "lane0(weight(sink, new_max))", "2.0f * lane0(weight(sink, new_max))"),
    Fault("sink-of-another-head", MERGE, "Isa::set1(args.sinks[head])", "Isa::set1(args.sinks[0])"),
    Fault("gqa-interleaved", KERNEL, "return kv_head * share + state % share;",
          "return state % share * (args.heads / share) + kv_head;"),
    Fault("head-group-start", RUN, "first_head = head_group * decodes.group_heads", "first_head = head_group"),
    Fault("cut-without-position", RUN, "task.first_position += begin;", ""),
    Fault("merge-weights-swapped", "src/kernels/attention/cpu/products.h",
          "Isa::set1(second[r]), Isa::mul(Isa::load(values), Isa::set1(first[r]))",
          "Isa::set1(first[r]), Isa::mul(Isa::load(values), Isa::set1(second[r]))"),
    Fault("overflown-sum", KERNEL, "max == kMinusInfinity ? sum * 0.0f : sum", "sum"),
    Fault("slot-minus-one", WRITE,
          "if (slots[i] < 0) continue; HeadWriter writer(kv, slots[i]);"
          " for (int64_t h = 0; h < kv.kv_heads; ++h) { writer.write_k(h, head_of(",
          "HeadWriter writer(kv, std::max<int64_t>(slots[i], 0));"
          " for (int64_t h = 0; h < kv.kv_heads; ++h) { writer.write_k(h, head_of("),
    Fault("slot-minus-one-rope", WRITE,
          "if (slots[i] < 0) continue; HeadWriter writer(kv, slots[i]);"
          " for (int64_t h = 0; h < kv.kv_heads; ++h) { std::memcpy(rotated,",
          "HeadWriter writer(kv, std::max<int64_t>(slots[i], 0));"
          " for (int64_t h = 0; h < kv.kv_heads; ++h) { std::memcpy(rotated,"),
    Fault("slot-past-the-row", "src/kvcache/block_pool.cc", "position / block_size >= static_cast",
          "position / block_size > static_cast"),
]


if __name__ == "__main__":
    sys.exit(main("Do the tests notice faults in attention?", FAULTS, SUITE))
