#include "sample/gpu_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace quire {
namespace {

bool has_repetition(const SamplingParams& params) { return static_cast<float>(params.repetition_penalty) != 1.0f; }
bool has_output_penalty(const SamplingParams& params) {
  return params.frequency_penalty != 0.0 || params.presence_penalty != 0.0;
}
bool has_penalty(const SamplingParams& params) { return has_repetition(params) || has_output_penalty(params); }

// Appends `from` to `to` at `used`; returns where it begins.
int32_t append(std::span<const int32_t> from, std::span<int32_t> to, size_t& used) {
  const auto begin = static_cast<int32_t>(used);
  std::copy(from.begin(), from.end(), to.begin() + begin);
  used += from.size();
  return begin;
}

// The output ends with all of the word but its last token.
bool is_about_to_end(const std::vector<int32_t>& word, std::span<const int32_t> output) {
  const size_t before = word.size() - 1;
  return before <= output.size() &&
         std::equal(word.begin(), word.end() - 1, output.end() - static_cast<std::ptrdiff_t>(before));
}

gpu::SampleKind kind_of(const gpu::SampleRow& row, int32_t vocab) {
  const bool rules = row.prompt_tokens + row.output_tokens + row.allowed + row.masked + row.biases != 0;
  if (row.inverse_temperature == 0) return rules ? gpu::SampleKind::kShort : gpu::SampleKind::kGreedy;
  if (row.top_k > 0) return gpu::is_short_head(row.top_k, vocab) ? gpu::SampleKind::kShort : gpu::SampleKind::kLong;
  if (row.top_p < 1 || std::isfinite(row.log_min_p)) return gpu::SampleKind::kLong;
  return rules ? gpu::SampleKind::kShort : gpu::SampleKind::kRace;
}

}  // namespace

bool needs_output(const SamplingParams& params) { return has_penalty(params) || !params.bad_words.empty(); }

GpuRowSizes& GpuRowSizes::operator+=(const GpuRowSizes& other) {
  rows += other.rows;
  tokens += other.tokens;
  ids += other.ids;
  biases += other.biases;
  return *this;
}

GpuRowSizes most_of_row(const SamplingParams& params, size_t max_tokens, size_t stop_ids) {
  GpuRowSizes sizes;
  sizes.rows = 1;
  sizes.tokens = has_penalty(params) ? max_tokens : 0;
  sizes.ids = params.allowed_token_ids.size() + params.bad_words.size() + (params.min_tokens > 0 ? stop_ids : 0);
  sizes.biases = params.logit_bias.size();
  return sizes;
}

void GpuRowWriter::clear() { *this = GpuRowWriter(buffers_, vocab_); }

bool GpuRowWriter::has_room(const GpuRowSizes& more) const {
  return more.rows <= buffers_.rows.size() - used_.rows && more.tokens <= buffers_.tokens.size() - used_.tokens &&
         more.ids <= buffers_.ids.size() - used_.ids && more.biases <= buffers_.bias_ids.size() - used_.biases;
}

void GpuRowWriter::note(const gpu::SampleRow& row) {
  any_greedy_ |= row.kind == gpu::SampleKind::kGreedy;
  any_race_ |= row.kind == gpu::SampleKind::kRace;
  any_short_ |= row.kind == gpu::SampleKind::kShort;
  any_long_ |= row.kind == gpu::SampleKind::kLong;
  any_logprobs_ |= row.logprobs >= 0;
  max_logprobs_ = std::max(max_logprobs_, row.logprobs);
}

bool GpuRowWriter::add(const SampleInput& input) {
  const SamplingParams& params = *input.params;
  if (!params.logprob_token_ids.empty()) return false;
  if (!has_room(most_of_row(params, input.prompt_ids.size() + input.output_ids.size(), input.stop_ids.size()))) {
    return false;
  }
  gpu::SampleRow row;
  row.seed = input.seed;
  row.choice = input.choice;
  row.position = static_cast<uint32_t>(input.output_ids.size()) + input.pending;
  if (!params.greedy()) {
    row.inverse_temperature = static_cast<float>(1.0 / params.temperature);
    row.top_p = params.top_p;
    row.top_k = params.top_k > 0 && params.top_k < vocab_ ? static_cast<int32_t>(params.top_k) : 0;
    if (params.min_p > 0) row.log_min_p = static_cast<float>(std::log(params.min_p));
  }
  if (params.logprobs) row.logprobs = *params.logprobs < 0 ? vocab_ : std::min(*params.logprobs, vocab_);

  row.allowed_begin = append(params.allowed_token_ids, buffers_.ids, used_.ids);
  row.allowed = static_cast<int32_t>(params.allowed_token_ids.size());
  row.masked_begin = static_cast<int32_t>(used_.ids);
  for (const std::vector<int32_t>& word : params.bad_words) {
    if (is_about_to_end(word, input.output_ids)) buffers_.ids[used_.ids++] = word.back();
  }
  if (row.position < params.min_tokens) {
    (void)append(input.stop_ids, buffers_.ids, used_.ids);
  }
  row.masked = static_cast<int32_t>(used_.ids) - row.masked_begin;
  row.bias_begin = static_cast<int32_t>(used_.biases);
  row.biases = static_cast<int32_t>(params.logit_bias.size());
  for (const auto& [id, bias] : params.logit_bias) {
    buffers_.bias_ids[used_.biases] = id;
    buffers_.bias_values[used_.biases++] = bias;
  }
  row.tokens_begin = static_cast<int32_t>(used_.tokens);
  if (has_repetition(params)) {
    row.repetition_penalty = static_cast<float>(params.repetition_penalty);
    row.prompt_tokens = static_cast<int32_t>(input.prompt_ids.size());
    (void)append(input.prompt_ids, buffers_.tokens, used_.tokens);
  }
  if (has_penalty(params)) {
    row.frequency_penalty = params.frequency_penalty;
    row.presence_penalty = params.presence_penalty;
    row.output_tokens = static_cast<int32_t>(input.output_ids.size());
    (void)append(input.output_ids, buffers_.tokens, used_.tokens);
  }
  row.kind = kind_of(row, vocab_);
  note(row);
  buffers_.rows[used_.rows++] = row;
  return true;
}

bool GpuRowWriter::add_given(int32_t token, int32_t n) {
  if (used_.rows == buffers_.rows.size()) return false;
  gpu::SampleRow row;
  row.given_token = token;
  row.logprobs = n < 0 ? vocab_ : std::min(n, vocab_);
  note(row);
  buffers_.rows[used_.rows++] = row;
  return true;
}

void GpuRowWriter::describe(gpu::SampleArgs& args) const {
  args.rows = static_cast<int32_t>(used_.rows);
  args.vocab = vocab_;
  args.any_greedy = any_greedy_;
  args.any_race = any_race_;
  args.any_short = any_short_;
  args.any_long = any_long_;
  args.any_logprobs = any_logprobs_;
  args.max_logprobs = max_logprobs_;
}

SampleResult gpu_sample_result(const gpu::SampleRow& row, const gpu::SampleResultRow& result,
                               std::span<const int32_t> top_ids, std::span<const float> top_logprobs) {
  SampleResult answer;
  answer.token = result.token;
  if (result.token < 0 || row.logprobs < 0) return answer;
  TokenLogprobs& logprobs = answer.logprobs.emplace();
  logprobs.token = {result.token, result.logprob, result.rank};
  logprobs.top.reserve(static_cast<size_t>(row.logprobs));
  for (int32_t i = 0; i < row.logprobs; ++i) {
    logprobs.top.push_back({top_ids[static_cast<size_t>(i)], top_logprobs[static_cast<size_t>(i)], i + 1});
  }
  return answer;
}

}  // namespace quire
