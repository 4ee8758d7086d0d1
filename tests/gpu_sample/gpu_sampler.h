#pragma once
// Rows of logits with what is wanted of them, and both samplers' answers.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "gpu/device.h"
#include "gpu/memory.h"
#include "gpu/stream.h"
#include "sample/gpu_rows.h"

namespace quire {

struct Request {
  SamplingParams params;
  std::vector<int32_t> prompt, output, stop_ids;
  uint64_t seed = 0;
  uint32_t choice = 0;
  int32_t given = -1;  // >= 0: only this token's log-probabilities are wanted
  std::vector<float> logits;

  SampleInput input() const { return {&params, prompt, output, stop_ids, seed, choice}; }
  SampleResult on_cpu(SamplerScratch& scratch) const {
    if (given >= 0) return {given, token_logprobs(logits, given, params.logprobs.value_or(0), scratch)};
    std::vector<float> row = logits;
    return sample(row, input(), scratch);
  }
};

// Everything that sample_rows() needs for up to `rows` rows of at most `vocab` logits.
class GpuSampler {
 public:
  GpuSampler(int32_t rows, int32_t vocab)
      : rows_(rows),
        logits_(static_cast<size_t>(rows) * static_cast<size_t>(vocab + 64) * 4),
        state_(gpu::sample_state_bytes(rows)),
        sampled_(static_cast<size_t>(rows) * 4),
        results_(static_cast<size_t>(rows) * sizeof(gpu::SampleResultRow)) {
    stream_.zero(state_.data(), state_.bytes());
  }

  // Places the rows' logits and parameters on the device. `padding`: of each row, in floats.
  void place(const std::vector<const Request*>& requests, int32_t vocab, int32_t padding) {
    GpuRowSizes sizes;
    for (const Request* r : requests)
      sizes += most_of_row(r->params, r->prompt.size() + r->output.size(), r->stop_ids.size());
    params_host_.assign(requests.size(), {});
    tokens_host_.assign(sizes.tokens, 0);
    ids_host_.assign(sizes.ids, 0);
    bias_ids_host_.assign(sizes.biases, 0);
    bias_values_host_.assign(sizes.biases, 0);
    GpuRowWriter writer({params_host_, tokens_host_, ids_host_, bias_ids_host_, bias_values_host_}, vocab);
    for (const Request* r : requests) {
      fits_ &= r->given >= 0 ? writer.add_given(r->given, r->params.logprobs.value_or(0)) : writer.add(r->input());
    }
    writer.describe(args_);
    args_.row_stride = vocab + padding;
    std::vector<float> all(requests.size() * static_cast<size_t>(args_.row_stride), 1e9f);
    for (size_t i = 0; i < requests.size(); ++i) {
      std::copy(requests[i]->logits.begin(), requests[i]->logits.end(),
                all.begin() + static_cast<std::ptrdiff_t>(i) * args_.row_stride);
    }
    stream_.copy_to_device(logits_.data(), all.data(), all.size() * 4, "logits");
    args_.logits = static_cast<const float*>(logits_.data());
    args_.params = upload(params_host_, params_);
    args_.tokens = upload(tokens_host_, tokens_);
    args_.ids = upload(ids_host_, ids_);
    args_.bias_ids = upload(bias_ids_host_, bias_ids_);
    args_.bias_values = upload(bias_values_host_, bias_values_);
    args_.sampled = static_cast<int32_t*>(sampled_.data());
    args_.results = static_cast<gpu::SampleResultRow*>(results_.data());
    const size_t top = requests.size() * static_cast<size_t>(args_.max_logprobs) * 4;
    grow(top_ids_, top);
    grow(top_logprobs_, top);
    args_.top_ids = static_cast<int32_t*>(top_ids_.data());
    args_.top_logprobs = static_cast<float*>(top_logprobs_.data());
    grow(workspace_, gpu::sample_workspace_bytes(rows_, vocab));
    stream_.wait("placed");
  }
  void enqueue() { gpu::sample_rows(args_, state_.data(), workspace_.data(), stream_); }
  std::vector<SampleResult> answers() {
    const auto rows = static_cast<size_t>(args_.rows), n = static_cast<size_t>(args_.max_logprobs);
    std::vector<gpu::SampleResultRow> results(rows);
    std::vector<int32_t> sampled(rows), top_ids(rows * n);
    std::vector<float> top_logprobs(rows * n);
    stream_.copy_to_host(results.data(), results_.data(), rows * sizeof results[0], "results");
    stream_.copy_to_host(sampled.data(), sampled_.data(), rows * 4, "sampled");
    if (n > 0) stream_.copy_to_host(top_ids.data(), top_ids_.data(), rows * n * 4, "top ids");
    if (n > 0) stream_.copy_to_host(top_logprobs.data(), top_logprobs_.data(), rows * n * 4, "top logprobs");
    stream_.wait("results");
    std::vector<SampleResult> answers;
    for (size_t i = 0; i < rows; ++i) {
      answers.push_back(gpu_sample_result(params_host_[i], results[i], std::span(top_ids).subspan(i * n, n),
                                          std::span(top_logprobs).subspan(i * n, n)));
      if (sampled[i] != answers.back().token) answers.back().token = -1000;
    }
    return answers;
  }
  std::vector<SampleResult> run(const std::vector<const Request*>& requests, int32_t vocab, int32_t padding) {
    place(requests, vocab, padding);
    enqueue();
    return answers();
  }
  gpu::Stream& stream() { return stream_; }
  gpu::SampleArgs& args() { return args_; }
  bool fits() const { return fits_; }

 private:
  void grow(gpu::DeviceMemory& memory, size_t bytes) {
    if (memory.bytes() < bytes) memory = gpu::DeviceMemory(bytes);
  }
  template <class T>
  const T* upload(const std::vector<T>& from, gpu::DeviceMemory& to) {
    grow(to, from.size() * sizeof(T));
    if (!from.empty()) stream_.copy_to_device(to.data(), from.data(), from.size() * sizeof(T), "input");
    return static_cast<const T*>(to.data());
  }

  int32_t rows_;
  bool fits_ = true;
  gpu::Stream stream_;
  gpu::SampleArgs args_;
  gpu::DeviceMemory logits_, state_, sampled_, results_, workspace_, top_ids_, top_logprobs_, params_, tokens_, ids_,
      bias_ids_, bias_values_;
  std::vector<gpu::SampleRow> params_host_;
  std::vector<int32_t> tokens_host_, ids_host_, bias_ids_host_;
  std::vector<float> bias_values_host_;
};

}  // namespace quire
