#pragma once
// A scheduled step in the order of its batch: decodes, extends, prefills, each in the order of the schedule.
#include <cstdint>
#include <vector>

#include "attention/batch.h"
#include "engine/scheduler.h"

namespace quire {

struct StepOrder {
  std::vector<const ScheduledSequence*> sequences;  // of the step that was set last
  PhaseRange decode, extend, prefill;
  int32_t tokens = 0;

  // Allocates nothing where `sequences` has room for the step. decode_threshold: most tokens of a decode.
  void set(const std::vector<ScheduledSequence>& step, int64_t decode_threshold);
};

}  // namespace quire
