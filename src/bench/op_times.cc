#include "bench/op_times.h"

#include <algorithm>

namespace quire {

OpTimes::OpTimes() {
  for (const char* name : {"scheduler, hand-over", "staging", "plan", "sampling", "rest"}) op(name);
}

size_t OpTimes::op(std::string_view name, OpArithmetic arithmetic, bool product) {
  const auto found = std::find_if(ops_.begin(), ops_.end(), [&](const Op& op) { return op.name == name; });
  if (found != ops_.end()) return static_cast<size_t>(found - ops_.begin());
  ops_.push_back({std::string(name), arithmetic, product});
  for (StepTotals& totals : totals_) totals.ops.resize(ops_.size());
  return ops_.size() - 1;
}

void OpTimes::lap(size_t op) {
  const Clock::time_point now = Clock::now();
  totals_[kind_].ops[op].seconds += std::chrono::duration<double>(now - last_).count();
  last_ = now;
}

void OpTimes::begin_step(Kind kind, int64_t rows) {
  kind_ = kind;
  if (running_) {
    lap(kScheduling);
    ++totals_[kind].ops[kScheduling].calls;
  } else {
    last_ = Clock::now();
  }
  running_ = true;
  ++totals_[kind].steps;
  totals_[kind].rows += rows;
  step_bytes_ = 0;
  gap_ = kStaging;
}

void OpTimes::end_step(double sampled_bytes) {
  lap(kSampling);
  StepTotals& totals = totals_[kind_];
  ++totals.ops[kSampling].calls;
  totals.ops[kSampling].bytes += sampled_bytes;
  totals.largest_step_bytes = std::max(totals.largest_step_bytes, step_bytes_);
}

void OpTimes::begin_op() {
  lap(gap_);
  ++totals_[kind_].ops[gap_].calls;
  gap_ = kRest;
}

void OpTimes::end_op(size_t op, double bytes, double operations) {
  lap(op);
  OpTotals& totals = totals_[kind_].ops[op];
  ++totals.calls;
  totals.bytes += bytes;
  totals.operations += operations;
  step_bytes_ += bytes;
}

void OpTimes::clear() {
  for (StepTotals& totals : totals_) {
    totals = {};
    totals.ops.resize(ops_.size());
  }
  pause();
}

}  // namespace quire
