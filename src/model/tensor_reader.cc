#include "model/tensor_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"

namespace quire {

const TensorInfo& TensorReader::find(const std::string& name, const std::vector<int64_t>& shape) const {
  const TensorInfo* tensor = checkpoint_.find(name);
  if (tensor == nullptr)
    throw invalid_argument(fmt::format("{}: tensor {} is missing", checkpoint_.path(), name), name);
  if (tensor->shape != shape) {
    throw invalid_argument(fmt::format("{}: tensor {} has shape [{}], the config asks for [{}]", checkpoint_.path(),
                                       name, fmt::join(tensor->shape, ", "), fmt::join(shape, ", ")),
                           name);
  }
  if (shape.back() % block_elements(tensor->dtype) != 0) {
    throw invalid_argument(
        fmt::format("{}: tensor {} has {} columns, not a whole number of {} blocks of {}", checkpoint_.path(), name,
                    shape.back(), dtype_name(tensor->dtype), block_elements(tensor->dtype)),
        name);
  }
  return *tensor;
}

void TensorReader::done(const TensorInfo& tensor) {
  checkpoint_.release(tensor);
  loaded_bytes_ += storage_bytes(tensor.dtype, tensor.elements());
  if (progress_)
    progress_(std::min(1.0, static_cast<double>(loaded_bytes_) / static_cast<double>(checkpoint_.weight_bytes())));
}

}  // namespace quire
