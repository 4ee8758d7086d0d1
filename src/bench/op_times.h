#pragma once
// Where the time of an engine's steps goes: a clock that is read between the ops of one thread, so that every moment of
// a step belongs to one of them.
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

// Whose rate an op's operations are held against.
enum class OpArithmetic : uint8_t { kF32, kInt8 };

struct OpTotals {
  double seconds = 0;
  int64_t calls = 0;
  double bytes = 0;       // that have to be read
  double operations = 0;  // a multiply-add is two
};

// Of all steps of a kind.
struct StepTotals {
  int64_t steps = 0;
  int64_t rows = 0;               // tokens computed
  std::vector<OpTotals> ops;      // as OpTimes::ops()
  double largest_step_bytes = 0;  // read by one step
};

class OpTimes {
 public:
  enum Kind : uint8_t { kPrefill, kDecode };  // kDecode: no request has more than one token in the step

  // Ops that every engine has, in front of those of its model.
  enum Fixed : uint8_t { kScheduling, kStaging, kPlan, kSampling, kRest, kFixed };

  struct Op {
    std::string name;
    OpArithmetic arithmetic = OpArithmetic::kF32;
    bool product = false;  // a linear layer
  };

  OpTimes();
  // The op of that name; made if there is none.
  size_t op(std::string_view name, OpArithmetic arithmetic = OpArithmetic::kF32, bool product = false);
  const std::vector<Op>& ops() const { return ops_; }

  // The engine thread, for each step. What lies between the end of one step and the begin of the next is kScheduling,
  // before the plan kStaging, after the last op kSampling; kRest between ops.
  void begin_step(Kind kind, int64_t rows);
  void end_step(double sampled_bytes);
  // Around each op.
  void begin_op();
  void end_op(size_t op, double bytes, double operations);

  // Any thread, between batches of requests. pause: what comes before the next step is nobody's.
  void pause() { running_ = false; }
  void clear();
  const StepTotals& totals(Kind kind) const { return totals_[kind]; }

 private:
  using Clock = std::chrono::steady_clock;
  void lap(size_t op);  // the time since the last lap is that op's

  std::vector<Op> ops_;
  std::array<StepTotals, 2> totals_;
  Clock::time_point last_;
  bool running_ = false;
  Kind kind_ = kPrefill;
  size_t gap_ = kRest;  // whose the time between two ops is
  double step_bytes_ = 0;
};

}  // namespace quire
