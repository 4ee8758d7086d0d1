#include "bench/breakdown.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <numeric>

namespace quire {
namespace {

constexpr double kGiga = 1e9;
constexpr std::array kOverhead = {OpTimes::kScheduling, OpTimes::kStaging, OpTimes::kPlan, OpTimes::kSampling};

double at_rate(double work, double giga_per_second) {
  return giga_per_second > 0 ? work / (giga_per_second * kGiga) : 0.0;
}

double operation_rate(const DeviceLimits& limits, OpArithmetic arithmetic) {
  return arithmetic == OpArithmetic::kInt8 ? limits.dot_int8.best : limits.fma_f32.best;
}

BreakdownOp make_op(const OpTimes::Op& op, const OpTotals& totals, const DeviceLimits& limits, bool from_cache) {
  BreakdownOp result{op.name, totals, "", 0};
  const MeasuredRate& read = from_cache ? limits.read_cache : limits.read_memory;
  const double reading = at_rate(totals.bytes, read.best);
  const double computing = at_rate(totals.operations, operation_rate(limits, op.arithmetic));
  if (totals.seconds <= 0 || (reading <= 0 && computing <= 0)) return result;
  const char* arithmetic = op.arithmetic == OpArithmetic::kInt8 ? "int8" : "f32";
  const char* memory = from_cache ? "read L3" : "read";
  result.limit = computing > reading ? arithmetic : memory;
  result.limit_share = std::max(reading, computing) / totals.seconds;
  return result;
}

BreakdownPhase make_phase(const std::vector<OpTimes::Op>& ops, const StepTotals& totals, const DeviceLimits& limits) {
  BreakdownPhase phase;
  phase.steps = totals.steps;
  phase.rows = totals.rows;
  phase.from_cache =
      limits.read_cache.best > 0 && totals.largest_step_bytes <= static_cast<double>(limits.last_cache_bytes);
  // Those of the engine come first where they are counted, and last where they are read.
  std::vector<size_t> order(ops.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::rotate(order.begin(), order.begin() + OpTimes::kFixed, order.end());
  double products = 0, products_at_limit = 0, bytes = 0;
  for (const size_t i : order) {
    const OpTotals& op = totals.ops[i];
    if (op.seconds <= 0) continue;
    phase.seconds += op.seconds;
    bytes += op.bytes;
    if (ops[i].product) {
      products += op.seconds;
      products_at_limit += at_rate(op.operations, operation_rate(limits, ops[i].arithmetic));
    }
    phase.ops.push_back(make_op(ops[i], op, limits, phase.from_cache));
  }
  for (const auto i : kOverhead) phase.overhead_seconds += totals.ops[i].seconds;
  phase.products_share = products > 0 ? products_at_limit / products : 0;
  phase.memory_share = phase.seconds > 0 ? at_rate(bytes, limits.read_memory.best) / phase.seconds : 0;
  return phase;
}

std::string phase_text(const char* name, const BreakdownPhase& phase, int64_t iterations) {
  if (phase.steps == 0) return "";
  const auto n = static_cast<double>(iterations), steps = static_cast<double>(phase.steps);
  std::string out =
      fmt::format("\n{}: {:.0f} steps of {:.1f} rows, {:.2f} ms; {:.3f} ms a step\n", name, steps / n,
                  static_cast<double>(phase.rows) / steps, phase.seconds / n * 1e3, phase.seconds / steps * 1e3);
  out += fmt::format("{:<21}{:>10}{:>7}{:>8}{:>10}{:>8}{:>9}  {:<8}{:>6}\n", "op", "ms", "%", "calls", "GB", "GB/s",
                     "GOP/s", "limit", "%");
  for (const BreakdownOp& op : phase.ops) {
    const OpTotals& t = op.totals;
    out += fmt::format("{:<21}{:>10.3f}{:>7.1f}{:>8.0f}", op.name, t.seconds / n * 1e3, t.seconds / phase.seconds * 100,
                       static_cast<double>(t.calls) / n);
    const auto cell = [&](double value, int width, int digits) {
      out += value > 0 ? fmt::format("{:>{}.{}f}", value, width, digits) : fmt::format("{:>{}}", "", width);
    };
    cell(t.bytes / n / kGiga, 10, 4);
    cell(op.gigabytes_per_second(), 8, 1);
    cell(op.gigaoperations_per_second(), 9, 1);
    if (!op.limit.empty()) out += fmt::format("  {:<8}{:>6.1f}", op.limit, op.limit_share * 100);
    out += '\n';
  }
  out += fmt::format(
      "linear products: {:.1f} % of the rate of their arithmetic; all bytes: {:.1f} % of the rate of "
      "reading memory; {:.1f} us a step for scheduler, hand-over, staging, plan and sampling\n",
      phase.products_share * 100, phase.memory_share * 100, phase.overhead_seconds / steps * 1e6);
  return out;
}

nlohmann::ordered_json phase_json(const BreakdownPhase& phase) {
  nlohmann::ordered_json ops = nlohmann::ordered_json::array();
  for (const BreakdownOp& op : phase.ops) {
    ops.push_back({{"op", op.name},
                   {"seconds", op.totals.seconds},
                   {"calls", op.totals.calls},
                   {"bytes", op.totals.bytes},
                   {"operations", op.totals.operations},
                   {"gb_s", op.gigabytes_per_second()},
                   {"gop_s", op.gigaoperations_per_second()},
                   {"limit", op.limit},
                   {"limit_share", op.limit_share}});
  }
  return {{"steps", phase.steps},
          {"rows", phase.rows},
          {"seconds", phase.seconds},
          {"from_cache", phase.from_cache},
          {"products_share", phase.products_share},
          {"memory_share", phase.memory_share},
          {"overhead_seconds", phase.overhead_seconds},
          {"ops", std::move(ops)}};
}

}  // namespace

Breakdown make_breakdown(const OpTimes& times, const DeviceLimits& limits, int64_t iterations, double seconds) {
  return {iterations, seconds, make_phase(times.ops(), times.totals(OpTimes::kPrefill), limits),
          make_phase(times.ops(), times.totals(OpTimes::kDecode), limits), limits};
}

std::string breakdown_text(const Breakdown& breakdown) {
  const auto n = static_cast<double>(breakdown.iterations);
  std::string out = fmt::format("\nAn iteration: {:.2f} ms, of these outside of steps {:.2f} ms\n",
                                breakdown.seconds / n * 1e3, breakdown.outside_seconds() / n * 1e3);
  out += phase_text("Prefill", breakdown.prefill, breakdown.iterations);
  out += phase_text("Decode", breakdown.decode, breakdown.iterations);
  const DeviceLimits& limits = breakdown.limits;
  out += fmt::format("\nLimits: read {:.1f} GB/s, inside L3 {:.1f} GB/s; f32 {:.0f} GFLOP/s, int8 {:.0f} GOP/s ({})\n",
                     limits.read_memory.best, limits.read_cache.best, limits.fma_f32.best, limits.dot_int8.best,
                     limits.int8_instructions);
  return out;
}

std::string breakdown_json(const Breakdown& breakdown) {
  const nlohmann::ordered_json json = {{"iterations", breakdown.iterations},
                                       {"seconds", breakdown.seconds},
                                       {"outside_seconds", breakdown.outside_seconds()},
                                       {"prefill", phase_json(breakdown.prefill)},
                                       {"decode", phase_json(breakdown.decode)},
                                       {"limits", nlohmann::ordered_json::parse(device_json(breakdown.limits))}};
  return json.dump(4);
}

}  // namespace quire
