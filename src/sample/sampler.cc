#include "sample/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "sample/philox.h"

namespace quire {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
// -log(-log(u)) of the largest uniform_open() is 16.64: a candidate further below the best so far can't win.
constexpr float kLargestGumbel = 16.7f;

void keep_only(std::span<float> logits, std::span<const int32_t> allowed, std::vector<int32_t>& ids) {
  ids.assign(allowed.begin(), allowed.end());
  std::sort(ids.begin(), ids.end());
  size_t next = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    while (next < ids.size() && static_cast<size_t>(ids[next]) < i) ++next;
    if (next == ids.size() || static_cast<size_t>(ids[next]) != i) logits[i] = kMinusInfinity;
  }
}

// A bad word's last token is masked where the output ends with the tokens before it.
void mask_bad_words(std::span<float> logits, const std::vector<std::vector<int32_t>>& words, std::span<const int32_t> output) {
  for (const std::vector<int32_t>& word : words) {
    const size_t before = word.size() - 1;
    if (before > output.size()) continue;
    if (std::equal(word.begin(), word.end() - 1, output.end() - static_cast<std::ptrdiff_t>(before))) {
      logits[static_cast<size_t>(word.back())] = kMinusInfinity;
    }
  }
}

// Repetition (prompt and output, once a token), then frequency and presence (output only). ids is scratch.
void apply_penalties(std::span<float> logits, const SamplingParams& params, std::span<const int32_t> prompt, std::span<const int32_t> output,
                     std::vector<int32_t>& ids) {
  if (params.repetition_penalty != 1.0) {
    ids.assign(prompt.begin(), prompt.end());
    ids.insert(ids.end(), output.begin(), output.end());
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    const auto penalty = static_cast<float>(params.repetition_penalty);
    for (const int32_t id : ids) {
      float& logit = logits[static_cast<size_t>(id)];
      logit = logit > 0 ? logit / penalty : logit * penalty;
    }
  }
  if (params.frequency_penalty == 0.0 && params.presence_penalty == 0.0) return;
  ids.assign(output.begin(), output.end());
  std::sort(ids.begin(), ids.end());
  for (size_t i = 0; i < ids.size();) {
    size_t end = i;
    while (end < ids.size() && ids[end] == ids[i]) ++end;
    const double count = static_cast<double>(end - i);
    logits[static_cast<size_t>(ids[i])] -= static_cast<float>(params.frequency_penalty * count + params.presence_penalty);
    i = end;
  }
}

void process_logits(std::span<float> logits, const SampleInput& input, std::vector<int32_t>& ids) {
  const SamplingParams& params = *input.params;
  if (!params.allowed_token_ids.empty()) keep_only(logits, params.allowed_token_ids, ids);
  if (!params.bad_words.empty()) mask_bad_words(logits, params.bad_words, input.output_ids);
  if (static_cast<int64_t>(input.output_ids.size()) < params.min_tokens) {
    for (const int32_t id : input.stop_ids) logits[static_cast<size_t>(id)] = kMinusInfinity;
  }
  for (const auto& [id, bias] : params.logit_bias) logits[static_cast<size_t>(id)] += bias;
  apply_penalties(logits, params, input.prompt_ids, input.output_ids, ids);
}

// Index of the largest logit, the lowest on ties; -1 if there is a NaN, an infinity or nothing but -inf.
int32_t argmax(std::span<const float> logits) {
  float best = kMinusInfinity;
  bool nan = false;
  for (const float x : logits) {
    best = x > best ? x : best;
    nan |= x != x;
  }
  if (nan || !std::isfinite(best)) return -1;
  return static_cast<int32_t>(std::find(logits.begin(), logits.end(), best) - logits.begin());
}

using Candidates = std::vector<std::pair<float, int32_t>>;

bool better(const std::pair<float, int32_t>& a, const std::pair<float, int32_t>& b) {
  return a.first != b.first ? a.first > b.first : a.second < b.second;
}

// What min_p, top_k and top_p leave of logits that are already divided by the temperature; best is their largest. Sorted best first where
// top_p asked for it. Ties at the k-th place go to lower ids.
void select_candidates(std::span<const float> logits, float best, const SamplingParams& params, Candidates& candidates) {
  candidates.clear();
  const float threshold = params.min_p > 0 ? best + static_cast<float>(std::log(params.min_p)) : kMinusInfinity;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] >= threshold && logits[i] != kMinusInfinity) candidates.emplace_back(logits[i], static_cast<int32_t>(i));
  }
  if (params.top_k > 0 && static_cast<size_t>(params.top_k) < candidates.size()) {
    const auto end = candidates.begin() + params.top_k;
    std::nth_element(candidates.begin(), end, candidates.end(), better);
    candidates.erase(end, candidates.end());
  }
  if (params.top_p >= 1.0) return;
  double total = 0;
  for (const auto& candidate : candidates) total += std::exp(static_cast<double>(candidate.first) - best);
  // Sort a growing head only: the mass is mostly in few candidates.
  size_t sorted = 0, kept = 0;
  double mass = 0;
  while (kept < candidates.size()) {
    if (kept == sorted) {
      sorted = std::min(candidates.size(), sorted * 4 + 64);
      const auto from = candidates.begin() + static_cast<std::ptrdiff_t>(kept), to = candidates.begin() + static_cast<std::ptrdiff_t>(sorted);
      std::partial_sort(from, to, candidates.end(), better);
    }
    mass += std::exp(static_cast<double>(candidates[kept++].first) - best);
    if (mass >= params.top_p * total * (1.0 - 1e-12)) break;
  }
  candidates.resize(kept);
}

// The largest logit + Gumbel noise; the lowest id on ties. Noise of id i: word i % 4 of the block with counter i / 4.
class GumbelMax {
 public:
  explicit GumbelMax(const SampleInput& input)
      : key0_(static_cast<uint32_t>(input.seed)),
        key1_(static_cast<uint32_t>(input.seed >> 32)),
        position_(static_cast<uint32_t>(input.output_ids.size())),
        choice_(input.choice) {}

  void offer(float logit, int32_t id) {
    if (logit + kLargestGumbel < best_) return;
    const uint32_t block = static_cast<uint32_t>(id) / 4;
    if (block != block_) {
      words_ = philox4x32({block, position_, choice_, 0}, key0_, key1_);
      block_ = block;
    }
    const float u = uniform_open(words_[static_cast<uint32_t>(id) % 4]);
    const float value = logit - std::log(-std::log(u));
    if (value > best_ || (value == best_ && id < winner_)) {
      best_ = value;
      winner_ = id;
    }
  }
  int32_t winner() const { return winner_; }

 private:
  uint32_t key0_, key1_, position_, choice_;
  uint32_t block_ = std::numeric_limits<uint32_t>::max();
  std::array<uint32_t, 4> words_{};
  float best_ = kMinusInfinity;
  int32_t winner_ = -1;
};

// Divides by the temperature around the largest logit, so that a tiny temperature can't overflow: the best becomes 0.
void apply_temperature(std::span<float> logits, float best, double temperature) {
  const auto inverse = static_cast<float>(1.0 / temperature);
  for (float& x : logits) x = (x - best) * inverse;
}

bool all_kept(const SamplingParams& params) { return params.top_k <= 0 && params.top_p >= 1.0 && params.min_p <= 0.0; }

}  // namespace

float philox_uniform(uint64_t seed, uint32_t choice, uint32_t position, uint32_t index) {
  return uniform_open(philox4x32({index / 4, position, choice, 0}, static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32))[index % 4]);
}

SampleResult sample(std::span<float> logits, const SampleInput& input, SamplerScratch& scratch) {
  const SamplingParams& params = *input.params;
  SampleResult result;
  const bool want_logprobs = params.logprobs.has_value();
  // Log-probabilities are those of the raw logits: they have to be taken before anything changes them, but only the token is known later.
  if (want_logprobs) scratch.raw.assign(logits.begin(), logits.end());
  process_logits(logits, input, scratch.ids);
  const int32_t greedy = argmax(logits);
  if (greedy < 0) return result;
  result.token = greedy;
  if (!params.greedy()) {
    apply_temperature(logits, logits[static_cast<size_t>(greedy)], params.temperature);
    GumbelMax race(input);
    race.offer(0.0f, greedy);  // a high first bid spares most of the others their noise
    if (all_kept(params)) {
      for (size_t i = 0; i < logits.size(); ++i) race.offer(logits[i], static_cast<int32_t>(i));
    } else {
      select_candidates(logits, 0.0f, params, scratch.candidates);
      for (const auto& [logit, id] : scratch.candidates) race.offer(logit, id);
    }
    result.token = race.winner();
  }
  if (want_logprobs) result.logprobs = token_logprobs(scratch.raw, result.token, *params.logprobs);
  return result;
}

TokenLogprobs token_logprobs(std::span<const float> logits, int32_t token, int32_t n) {
  const float best = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  int32_t rank = 1;
  const float own = logits[static_cast<size_t>(token)];
  for (const float x : logits) {
    sum += std::exp(static_cast<double>(x - best));
    rank += x > own;
  }
  const double log_sum = std::log(sum) + best;
  const auto logprob = [&](float x) { return static_cast<float>(x - log_sum); };
  TokenLogprobs result{{token, logprob(own), rank}, {}};
  const size_t count = n < 0 ? logits.size() : std::min(logits.size(), static_cast<size_t>(n));
  if (count == 0) return result;
  std::vector<std::pair<float, int32_t>> top;
  if (count <= 64) {
    // A short list kept sorted: one comparison for nearly every logit.
    for (size_t i = 0; i < logits.size(); ++i) {
      const std::pair<float, int32_t> entry{logits[i], static_cast<int32_t>(i)};
      if (top.size() == count && !better(entry, top.back())) continue;
      if (top.size() == count) top.pop_back();
      top.insert(std::upper_bound(top.begin(), top.end(), entry, better), entry);
    }
  } else {
    for (size_t i = 0; i < logits.size(); ++i) top.emplace_back(logits[i], static_cast<int32_t>(i));
    std::partial_sort(top.begin(), top.begin() + static_cast<std::ptrdiff_t>(count), top.end(), better);
    top.resize(count);
  }
  result.top.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    result.top.push_back({top[i].second, logprob(top[i].first), static_cast<int32_t>(i + 1)});
  }
  return result;
}

std::vector<std::pair<int32_t, double>> candidate_probabilities(std::span<float> logits, const SampleInput& input) {
  SamplerScratch scratch;
  process_logits(logits, input, scratch.ids);
  const int32_t greedy = argmax(logits);
  if (greedy < 0) return {};
  if (input.params->greedy()) return {{greedy, 1.0}};
  apply_temperature(logits, logits[static_cast<size_t>(greedy)], input.params->temperature);
  select_candidates(logits, 0.0f, *input.params, scratch.candidates);
  double total = 0;
  for (const auto& candidate : scratch.candidates) total += std::exp(static_cast<double>(candidate.first));
  std::vector<std::pair<int32_t, double>> result;
  for (const auto& [logit, id] : scratch.candidates) result.emplace_back(id, std::exp(static_cast<double>(logit)) / total);
  std::sort(result.begin(), result.end());
  return result;
}

}  // namespace quire
