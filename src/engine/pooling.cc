#include "engine/pooling.h"

#include <algorithm>
#include <cmath>

#include "engine/generation_state.h"

namespace quire {
namespace {

template <class T, class Widen>
void add_rows(std::vector<double>& sum, const T* states, int64_t rows, Widen widen) {
  for (int64_t row = 0; row < rows; ++row, states += sum.size()) {
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += static_cast<double>(widen(states[i]));
  }
}

}  // namespace

void pool_rows(const HiddenRows& of, const void* states, DType dtype) {
  if (of.sequence == nullptr) return;
  EngineRequest& request = *of.sequence->request;
  std::vector<double>& sum = request.hidden_sum;
  if (request.input.pooling == Pooling::kLast || of.first == 0) std::fill(sum.begin(), sum.end(), 0.0);
  switch (dtype) {
    case DType::kF16:
      return add_rows(sum, static_cast<const uint16_t*>(states), of.rows, f16_to_f32);
    case DType::kBF16:
      return add_rows(sum, static_cast<const uint16_t*>(states), of.rows, bf16_to_f32);
    default:
      return add_rows(sum, static_cast<const float*>(states), of.rows, [](float x) { return x; });
  }
}

bool finish_pooling(EngineRequest& request) {
  const std::vector<double>& sum = request.hidden_sum;
  const bool mean = request.input.pooling == Pooling::kMean;
  const auto tokens = static_cast<double>(mean ? request.sequences[0]->prompt_len : 1);
  std::vector<float>& embedding = request.client->embedding_to_fill();
  std::transform(sum.begin(), sum.end(), embedding.begin(), [&](double x) { return static_cast<float>(x / tokens); });
  return std::all_of(embedding.begin(), embedding.end(), [](float x) { return std::isfinite(x); });
}

}  // namespace quire
