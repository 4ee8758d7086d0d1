#pragma once
// Tokens and log-probabilities of a step's rows of logits, computed by the host's workers.
#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "engine/runner.h"
#include "sample/sampler.h"

namespace quire {

class LogitsSampler {
 public:
  LogitsSampler(int64_t vocab_size, ThreadPool& pool)
      : vocab_size_(vocab_size), pool_(pool), scratch_(static_cast<size_t>(pool.workers())) {}

  // logits [rows.size(), vocab_size], overwritten. Results of sampled rows go to `sampled`, prompt log-probabilities to
  // their requests.
  void sample(std::span<const LogitsRow> rows, float* logits, std::vector<Runner::Sampled>& sampled);

 private:
  void sample_row(const LogitsRow& row, std::span<float> logits, std::vector<Runner::Sampled>& sampled,
                  SamplerScratch& scratch);

  int64_t vocab_size_;
  ThreadPool& pool_;
  std::vector<SamplerScratch> scratch_;  // one for each worker
};

}  // namespace quire
