#pragma once
// Gumbel-max: the largest of logit + noise is a draw from softmax(logits). The noise of id i is -log(-log(u)), u = 1 -
// (w + 1/2) / 2^32, where w is word i % 4 of the Philox block with counter (i / 4, position, choice, 0) and key seed.
#include <cstdint>
#include <limits>

namespace quire {

// What is left of a row that was sorted best first (larger logit, then lower id) and cut.
struct Cut {
  float logit = -std::numeric_limits<float>::max();
  int32_t last_id = std::numeric_limits<int32_t>::max();  // among logits equal to `logit`
  bool keeps(float other, int32_t id) const { return other > logit || (other == logit && id <= last_id); }
};

struct PhiloxStream {
  uint64_t seed;
  uint32_t position, choice;
};

// -log(-log(u)) of a random word; at most 22.9.
double gumbel(uint32_t word);
constexpr float kLargestGumbel = 22.9f;

// The leader so far among what `cut` keeps; the lowest id on ties, whatever the order of the offers.
struct GumbelRace {
  PhiloxStream stream;
  Cut cut;
  double best = -std::numeric_limits<double>::infinity();
  int32_t winner = -1;  // -1: nothing was offered

  void offer(float logit, int32_t id, uint32_t word);
  void offer(float logit, int32_t id);  // finds the word itself
};

}  // namespace quire
