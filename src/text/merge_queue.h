#pragma once
// The order of merges in a long word: by rank, then by position. Positions that come to a rank in rising order, as they
// do where a text repeats itself, cost O(1) each, so that a run of one character takes linear time; others go through a
// heap.
#include <cstddef>
#include <cstdint>
#include <vector>

namespace quire {

class MergeQueue {
 public:
  static constexpr uint32_t kNoRank = UINT32_MAX;

  // Empties the queue and makes room for positions 0 to positions - 1. Keeps its memory.
  void reset(size_t positions);
  // Gives a position a rank in place of the one it had; kNoRank takes it out.
  void set(int32_t position, uint32_t rank);
  // Takes out the position of lowest rank, the leftmost of equals; -1 if the queue is empty.
  int32_t pop();

 private:
  static constexpr int32_t kNone = -1, kStray = -2;
  // A position is in the list of its rank, or among the strays.
  struct Node {
    uint32_t rank = kNoRank;
    int32_t previous = kNone, next = kNone;  // in the list; previous is kStray for a stray
  };
  // The list of a rank, by rising position.
  struct List {
    uint32_t rank = kNoRank;
    int32_t first = kNone, last = kNone;
    bool active = false;  // its rank is in active_
  };

  List& list_of(uint32_t rank);  // one with kNoRank: to be filled for this rank
  void grow_lists();
  size_t slot_of(uint32_t rank) const { return (rank * 0x9E3779B1U) >> list_shift_; }
  void unlink(int32_t position);
  bool stray_is_stale(uint64_t stray) const;

  std::vector<Node> nodes_;
  std::vector<List> lists_;       // open addressing by rank, at most half full
  std::vector<size_t> used_;      // the slots of lists_ that hold one
  std::vector<uint32_t> active_;  // a heap of the ranks whose lists may hold something
  std::vector<uint64_t> strays_;  // a heap of rank << 32 | position, some of them stale
  int list_shift_ = 32;
};

}  // namespace quire
