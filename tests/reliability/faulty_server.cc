// `quire serve` with a runner that fails on demand: what a request's id says happens in each step that computes it.
//   ...fault-throw...    the forward pass throws
//   ...fault-sleep-N...  the forward pass takes N seconds, once for each such request
//   ...fault-nan...      no token can be chosen
// Two flags before those of `quire serve`:
//   --step-interval-us N  a step ends no sooner than N microseconds after the one before
//   --handover FILE       the time of each token's hand-over, for requests whose id ends in "clientC" (handover.h)
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "cli/serve.h"
#include "engine/engine.h"
#include "engine/forwarding_device.h"
#include "engine/parts.h"
#include "reliability/handover.h"

namespace quire {
namespace {

using Clock = std::chrono::steady_clock;

struct Faults {
  std::chrono::microseconds step_interval{0};
  std::string handover_file;
};

class FaultyRunner final : public Runner {
 public:
  FaultyRunner(std::unique_ptr<Runner> inner, const Faults& faults)
      : inner_(std::move(inner)), interval_(faults.step_interval), next_(Clock::now()) {
    if (!faults.handover_file.empty()) handover_ = map_handover_times(faults.handover_file, true);
  }

  void submit(const std::vector<ScheduledSequence>& step) override {
    for (const ScheduledSequence& scheduled : step) {
      const std::string& id = scheduled.sequence->request->input.id;
      if (id.find("fault-throw") != std::string::npos) throw std::runtime_error("injected: the forward pass fails");
      constexpr std::string_view kSleep = "fault-sleep-";
      if (const size_t at = id.find(kSleep); at != std::string::npos && slept_.insert(id).second) {
        std::this_thread::sleep_for(std::chrono::seconds(std::atoi(id.c_str() + at + kSleep.size())));
      }
    }
    inner_->submit(step);
  }

  std::vector<Sampled>& collect() override {
    std::vector<Sampled>& sampled = inner_->collect();
    for (Sampled& one : sampled) {
      if (one.sequence != nullptr && one.sequence->request->input.id.find("fault-nan") != std::string::npos) {
        one.result.token = -1;
      }
    }
    if (interval_.count() > 0) {
      std::this_thread::sleep_until(next_);
      next_ = std::max(next_ + interval_, Clock::now());
    }
    if (handover_ != nullptr) note_times(sampled);
    return sampled;
  }

  bool may_run_ahead() const override { return inner_->may_run_ahead(); }
  void forget(const Sequence& sequence) override { inner_->forget(sequence); }

 private:
  void note_times(const std::vector<Sampled>& sampled) {
    const int64_t now = Clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
    for (const Sampled& one : sampled) {
      if (one.sequence == nullptr) continue;
      constexpr std::string_view kClient = "client";
      const std::string& id = one.sequence->request->input.id;
      const size_t at = id.rfind(kClient);
      if (at == std::string::npos) continue;
      const auto client = static_cast<size_t>(std::atoi(id.c_str() + at + kClient.size()));
      const auto position = static_cast<size_t>(one.sequence->output_len());
      if (client < kHandoverClients && position < kHandoverTokens) handover_->at[client][position].store(now);
    }
  }

  std::unique_ptr<Runner> inner_;
  std::chrono::microseconds interval_;
  Clock::time_point next_;
  std::set<std::string> slept_;
  HandoverTimes* handover_ = nullptr;
};

// Another device in all but its runner.
class FaultyDevice final : public ForwardingDevice {
 public:
  FaultyDevice(std::unique_ptr<EngineDevice> inner, Faults faults)
      : ForwardingDevice(std::move(inner)), faults_(std::move(faults)) {}

  std::unique_ptr<Runner> make_runner(const Model& model, const AttentionBackend& backend, const AttentionGroup& group,
                                      const KvCache& kv, BlockTables& tables, const RunnerOptions& options) override {
    return std::make_unique<FaultyRunner>(ForwardingDevice::make_runner(model, backend, group, kv, tables, options),
                                          faults_);
  }

 private:
  Faults faults_;
};

int serve(std::vector<std::string> args) {
  Faults faults;
  while (args.size() >= 2) {
    if (args[0] == "--step-interval-us") {
      faults.step_interval = std::chrono::microseconds(std::stoll(args[1]));
    } else if (args[0] == "--handover") {
      faults.handover_file = args[1];
    } else {
      break;
    }
    args.erase(args.begin(), args.begin() + 2);
  }
  return serve_command(args, [&](const EngineConfig& given) {
    EngineConfig config = given;
    EngineParts parts = load_engine_parts(config);
    parts.device = std::make_unique<FaultyDevice>(std::move(parts.device), faults);
    return std::make_unique<Engine>(config, std::move(parts));
  });
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  try {
    return quire::serve({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << '\n';
    return 2;
  }
}
