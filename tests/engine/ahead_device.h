#pragma once
// The CPU as a device that runs ahead, as a GPU does: a step's tokens are handed over only when the next step has been
// submitted, which gets them on the device.
#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/forwarding_device.h"

namespace quire {

class AheadRunner final : public Runner {
 public:
  explicit AheadRunner(std::unique_ptr<Runner> inner) : inner_(std::move(inner)) {}

  void submit(const std::vector<ScheduledSequence>& step) override {
    // What the device knows already, shown to the inner runner for the time of the call.
    std::vector<Sequence*> completed;
    for (const ScheduledSequence& scheduled : step) {
      Sequence& sequence = *scheduled.sequence;
      if (sequence.pending == 0) continue;
      sequence.tokens.push_back(newest_.at(&sequence));
      --sequence.pending;
      completed.push_back(&sequence);
    }
    const auto restore = [&] {
      for (Sequence* sequence : completed) {
        sequence->tokens.pop_back();
        ++sequence->pending;
      }
    };
    try {
      inner_->submit(step);
    } catch (...) {
      restore();
      throw;
    }
    restore();
    under_way_.push_back(std::move(inner_->collect()));
    for (const Sampled& one : under_way_.back()) newest_[one.sequence] = one.result.token;
    most_under_way = std::max(most_under_way, under_way_.size());
  }
  std::vector<Sampled>& collect() override {
    collected_ = std::move(under_way_.front());
    under_way_.pop_front();
    return collected_;
  }
  bool may_run_ahead() const override { return true; }
  void forget(const Sequence& sequence) override {
    newest_.erase(&sequence);
    for (auto& step : under_way_) remove(step, sequence);
    remove(collected_, sequence);
  }

  size_t most_under_way = 0;

 private:
  static void remove(std::vector<Sampled>& step, const Sequence& sequence) {
    for (Sampled& one : step) {
      if (one.sequence == &sequence) one.sequence = nullptr;
    }
  }

  std::unique_ptr<Runner> inner_;
  std::deque<std::vector<Sampled>> under_way_;
  std::vector<Sampled> collected_;
  std::map<const Sequence*, int32_t> newest_;
};

class AheadDevice final : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;

  std::unique_ptr<Runner> make_runner(const Model& model, const AttentionBackend& backend, const AttentionGroup& group,
                                      const KvCache& kv, BlockTables& tables, const RunnerOptions& options) override {
    auto made =
        std::make_unique<AheadRunner>(ForwardingDevice::make_runner(model, backend, group, kv, tables, options));
    runner = made.get();
    return made;
  }

  AheadRunner* runner = nullptr;  // the engine's
};

}  // namespace quire
