#include "text/merge_queue.h"

#include <algorithm>
#include <functional>

namespace quire {
namespace {

constexpr int kFirstListBits = 6;
constexpr std::greater<> kLater;

}  // namespace

void MergeQueue::reset(size_t positions) {
  if (lists_.empty()) {
    lists_.resize(size_t{1} << kFirstListBits);
    list_shift_ = 32 - kFirstListBits;
  }
  for (const size_t slot : used_) lists_[slot] = {};
  used_.clear();
  active_.clear();
  strays_.clear();
  nodes_.assign(positions, Node{});
}

MergeQueue::List& MergeQueue::list_of(uint32_t rank) {
  size_t at = slot_of(rank);
  while (lists_[at].rank != rank && lists_[at].rank != kNoRank) at = (at + 1) & (lists_.size() - 1);
  return lists_[at];
}

void MergeQueue::grow_lists() {
  std::vector<List> old(lists_.size() * 2);
  old.swap(lists_);
  --list_shift_;
  used_.clear();
  for (const List& moved : old) {
    if (moved.rank == kNoRank) continue;
    List& list = list_of(moved.rank);
    list = moved;
    used_.push_back(static_cast<size_t>(&list - lists_.data()));
  }
}

void MergeQueue::unlink(int32_t position) {
  Node& node = nodes_[position];
  if (node.rank != kNoRank && node.previous != kStray) {
    List& list = list_of(node.rank);
    (node.previous == kNone ? list.first : nodes_[node.previous].next) = node.next;
    (node.next == kNone ? list.last : nodes_[node.next].previous) = node.previous;
  }
  node = {};
}

void MergeQueue::set(int32_t position, uint32_t rank) {
  Node& node = nodes_[position];
  if (node.rank == rank) return;
  unlink(position);
  if (rank == kNoRank) return;
  node.rank = rank;
  List* list = &list_of(rank);
  if (list->rank == kNoRank) {
    if ((used_.size() + 1) * 2 > lists_.size()) {
      grow_lists();
      list = &list_of(rank);
    }
    list->rank = rank;
    used_.push_back(static_cast<size_t>(list - lists_.data()));
  }
  if (list->last > position) {
    node.previous = kStray;
    strays_.push_back(static_cast<uint64_t>(rank) << 32 | static_cast<uint32_t>(position));
    std::push_heap(strays_.begin(), strays_.end(), kLater);
    return;
  }
  node.previous = list->last;
  (list->last == kNone ? list->first : nodes_[list->last].next) = position;
  list->last = position;
  if (!list->active) {
    list->active = true;
    active_.push_back(rank);
    std::push_heap(active_.begin(), active_.end(), kLater);
  }
}

bool MergeQueue::stray_is_stale(uint64_t stray) const {
  const Node& node = nodes_[stray & UINT32_MAX];
  return node.previous != kStray || node.rank != stray >> 32;
}

int32_t MergeQueue::pop() {
  while (!strays_.empty() && stray_is_stale(strays_.front())) {
    std::pop_heap(strays_.begin(), strays_.end(), kLater);
    strays_.pop_back();
  }
  int32_t first = kNone;
  while (!active_.empty()) {
    List& list = list_of(active_.front());
    first = list.first;
    if (first != kNone) break;
    list.active = false;
    std::pop_heap(active_.begin(), active_.end(), kLater);
    active_.pop_back();
  }
  if (!strays_.empty()) {
    const uint64_t listed =
        static_cast<uint64_t>(first == kNone ? kNoRank : active_.front()) << 32 | static_cast<uint32_t>(first);
    if (strays_.front() < listed) first = static_cast<int32_t>(strays_.front() & UINT32_MAX);
  }
  if (first != kNone) unlink(first);
  return first;
}

}  // namespace quire
