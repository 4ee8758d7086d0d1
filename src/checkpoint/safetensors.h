#pragma once
// The header of one safetensors file: names, types, shapes and places of tensors. Checked as the reference reader does:
// the tensors tile the data without holes or overlaps. Source: the safetensors format description.
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"

namespace quire {

struct SafetensorsEntry {
  TensorInfo info;
  const std::byte* data;
};

// bytes outlive the entries. Throws Error(kInvalidArgument) naming `name` and the field.
std::vector<SafetensorsEntry> read_safetensors(std::span<const std::byte> bytes, const std::string& name);

}  // namespace quire
