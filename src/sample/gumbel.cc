#include "sample/gumbel.h"

#include <cmath>

#include "sample/philox.h"

namespace quire {

double gumbel(uint32_t word) { return -std::log(-std::log1p(-upper_tail(word))); }

void GumbelRace::offer(float logit, int32_t id, uint32_t word) {
  if (!cut.keeps(logit, id)) return;
  const double value = static_cast<double>(logit) + gumbel(word);
  if (value > best || (value == best && id < winner)) {
    best = value;
    winner = id;
  }
}

void GumbelRace::offer(float logit, int32_t id) {
  const auto index = static_cast<uint32_t>(id);
  const auto words = philox4x32({index / 4, stream.position, stream.choice, 0}, static_cast<uint32_t>(stream.seed),
                                static_cast<uint32_t>(stream.seed >> 32));
  offer(logit, id, words[index % 4]);
}

}  // namespace quire
