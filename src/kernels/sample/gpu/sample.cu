#include "kernels/sample/gpu/sample.h"

#include <algorithm>
#include <string>

#include "gpu/device.h"
#include "kernels/sample/gpu/internal.h"

namespace quire::gpu {
namespace {

constexpr size_t kAlignment = 256;

// Hands out parts of a piece of memory; from nullptr it only counts.
class Parts {
 public:
  explicit Parts(void* base) : base_(static_cast<char*>(base)) {}
  template <class T>
  T* take(int64_t count) {
    T* part = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + used_);
    used_ += (static_cast<size_t>(count) * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
    return part;
  }
  size_t used() const { return used_; }

 private:
  char* base_;
  size_t used_ = 0;
};

size_t divide_state(void* state, int32_t rows, SampleMemory& memory) {
  Parts parts(state);
  memory.groups = parts.take<GroupState>(kMaxGroups);
  memory.rows = parts.take<RowState>(rows);
  return parts.used();
}

size_t divide_workspace(void* workspace, int32_t rows, int32_t vocab, SampleMemory& memory) {
  Parts parts(workspace);
  const int64_t chunks = chunks_of(vocab), groups = resident_groups(rows, vocab);
  memory.records = parts.take<ChunkRecord>(rows * chunks);
  memory.logprob_records = parts.take<LogprobRecord>(rows * chunks);
  memory.head_counts = parts.take<uint32_t>(rows * chunks);
  memory.heads = parts.take<Wide>(rows * chunks * kSlots);
  memory.histograms = parts.take<Histogram>(groups * 3);
  memory.gathered = parts.take<Wide>(groups * vocab);
  return parts.used();
}

}  // namespace

int resident_groups(int32_t rows, int32_t vocab) {
  static const int resident =
      use_device().multiprocessors * std::min(long_rows_per_multiprocessor(), long_logprobs_per_multiprocessor());
  const int groups = resident / chunks_of(vocab);
  if (groups == 0) {
    throw Error(ErrorKind::kInvalidArgument, "a vocabulary of " + std::to_string(vocab) +
                                                 " is too large for this GPU: the most is " +
                                                 std::to_string(resident * kChunk));
  }
  return std::min({static_cast<int>(rows), groups, kMaxGroups});
}

size_t sample_state_bytes(int32_t max_rows) {
  SampleMemory memory{};
  return divide_state(nullptr, max_rows, memory);
}

size_t sample_workspace_bytes(int32_t max_rows, int32_t vocab) {
  SampleMemory memory{};
  return divide_workspace(nullptr, max_rows, vocab, memory);
}

void sample_rows(const SampleArgs& args, void* state, void* workspace, Stream& stream) {
  if (args.rows == 0) return;
  SampleMemory memory{};
  (void)divide_state(state, args.rows, memory);
  (void)divide_workspace(workspace, args.rows, args.vocab, memory);
  const int groups = resident_groups(args.rows, args.vocab);
  choose_plain_rows(args, memory, stream);
  if (args.any_short) choose_short_rows(args, memory, stream);
  if (args.any_long) choose_long_rows(args, memory, groups, stream);
  if (!args.any_logprobs) return;
  if (args.vocab <= kShortVocab) compute_short_logprobs(args, memory, stream);
  if (!is_short_head(args.max_logprobs, args.vocab)) compute_long_logprobs(args, memory, groups, stream);
}

}  // namespace quire::gpu
