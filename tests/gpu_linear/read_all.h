#pragma once
#include <cstddef>

#include "gpu/stream.h"

namespace quire::gpu {

// Reads all bytes (a multiple of 16) as fast as a plain kernel can.
void read_all(const void* data, size_t bytes, int blocks, void* sink, Stream& stream);

// Work of so many blocks that lasts for about so many microseconds: what stands between the products of a step. With
// `overlapping` it starts while the kernel before it ends, and lets the next one start.
void pass_time(int blocks, double microseconds, bool overlapping, Stream& stream);

}  // namespace quire::gpu
