#include "engine/logits_sampler.h"

#include "engine/generation_state.h"

namespace quire {

void LogitsSampler::sample_row(const LogitsRow& row, std::span<float> logits, std::vector<Runner::Sampled>& sampled,
                               SamplerScratch& scratch) {
  if (row.sequence == nullptr) return;
  const Sequence& sequence = *row.sequence;
  const EngineRequest& request = *sequence.request;
  const SamplingParams& params = request.input.params;
  if (row.prompt_position >= 0) {
    const auto position = static_cast<size_t>(row.prompt_position);
    request.client->prompt_logprobs_to_fill()[position] =
        token_logprobs(logits, sequence.tokens[position], *params.prompt_logprobs, scratch);
    return;
  }
  const SampleInput input{&params,          sequence.prompt(), sequence.output(),
                          request.stop_ids, request.seed,      static_cast<uint32_t>(sequence.choice)};
  sampled[static_cast<size_t>(row.result)].result = quire::sample(logits, input, scratch);
}

void LogitsSampler::sample(std::span<const LogitsRow> rows, float* logits, std::vector<Runner::Sampled>& sampled) {
  pool_.parallel_for(static_cast<int64_t>(rows.size()), [&](int64_t begin, int64_t end, int worker) {
    for (int64_t i = begin; i < end; ++i) {
      const std::span<float> row(logits + i * vocab_size_, static_cast<size_t>(vocab_size_));
      sample_row(rows[static_cast<size_t>(i)], row, sampled, scratch_[static_cast<size_t>(worker)]);
    }
  });
}

}  // namespace quire
