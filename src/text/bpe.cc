#include "text/bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/quote.h"
#include "text/unicode.h"

namespace quire {
namespace {

constexpr size_t kShortWord = 40;  // up to here a scan for the lowest rank beats a heap
constexpr size_t kMergeBatch = 64;
constexpr size_t kMaxReserved = size_t{1} << 24;  // merges to make room for before they come

void note_bytes_before_marks(std::string_view key, std::array<bool, 256>& bytes) {
  for (size_t at = key.find(kSpaceMark, 1); at != std::string_view::npos;
       at = key.find(kSpaceMark, at + kSpaceMark.size())) {
    const bool after_mark =
        at >= kSpaceMark.size() && key.substr(at - kSpaceMark.size(), kSpaceMark.size()) == kSpaceMark;
    if (!after_mark) bytes[static_cast<uint8_t>(key[at - 1])] = true;
  }
}

}  // namespace

BpeModel::BpeModel(const Vocabulary& vocabulary, Options options, size_t expected_merges)
    : vocabulary_(vocabulary), options_(std::move(options)) {
  reserve_merges(std::clamp<size_t>(expected_merges, 1, kMaxReserved));  // a lookup needs at least one slot
  for (int b = 0; b < 256; ++b) {
    const char byte = static_cast<char>(b);
    byte_ids_[b] = vocabulary.style().byte_level || b < 128 ? vocabulary.find({&byte, 1}) : -1;
    char spelling[8];
    const int length = std::snprintf(spelling, sizeof spelling, "<0x%02X>", static_cast<unsigned>(b));
    fallback_ids_[b] = vocabulary.find({spelling, static_cast<size_t>(length)});
  }
  const bool may_cut = !vocabulary.style().byte_level && !has_affixes();
  if (may_cut && vocabulary.find(kSpaceMark) >= 0) bytes_before_marks_.emplace().fill(false);
  if (!options_.ignore_merges) {
    reachable_ = std::make_unique<std::atomic<uint8_t>[]>(static_cast<size_t>(vocabulary.size()));
  }
}

const BpeModel::Merge& BpeModel::find_merge(int32_t left, int32_t right) const {
  const uint64_t pair = pair_of(left, right);
  const size_t mask = merges_.size() - 1;
  size_t at = slot_of(pair);
  while (merges_[at].pair != pair && merges_[at].pair != kNoPair) at = (at + 1) & mask;
  return merges_[at];
}

void BpeModel::insert_merge(const Merge& merge) {
  const size_t mask = merges_.size() - 1;
  size_t at = slot_of(merge.pair);
  while (merges_[at].pair != merge.pair && merges_[at].pair != kNoPair) at = (at + 1) & mask;
  if (merges_[at].pair == kNoPair) ++merge_count_;
  merges_[at] = merge;
}

void BpeModel::reserve_merges(size_t more) {
  if ((merge_count_ + more) * 3 <= merges_.size() * 2) return;
  std::vector<Merge> old(std::bit_ceil((merge_count_ + more) * 3 / 2 + 1));
  old.swap(merges_);
  merge_shift_ = 64 - std::countr_zero(merges_.size());
  merge_count_ = 0;
  for (const Merge& merge : old) {
    if (merge.pair != kNoPair) insert_merge(merge);
  }
}

void BpeModel::MergeWriter::add(std::string_view left, std::string_view right, uint32_t rank) {
  const size_t begin = keys_.size();
  keys_.append(left).append(right);
  Pending& merge = pending_.emplace_back();
  merge.begin = begin;
  merge.left_length = static_cast<uint32_t>(left.size());
  merge.right_length = static_cast<uint32_t>(right.size());
  merge.joined_begin = 0;
  if (const size_t prefix = model_.options_.continuing_prefix.size(); prefix > 0) {
    merge.joined_begin = static_cast<uint32_t>(keys_.size() - begin);
    keys_.append(left).append(right.substr(std::min(prefix, right.size())));
  }
  merge.joined_length = static_cast<uint32_t>(keys_.size() - begin - merge.joined_begin);
  merge.rank = rank;
  merge.hashes[0] = Vocabulary::hash_of(left);
  merge.hashes[1] = Vocabulary::hash_of(right);
  merge.hashes[2] = Vocabulary::hash_of(joined(merge));
  for (const uint32_t hash : merge.hashes) model_.vocabulary_.prefetch_slot(hash);
  if (pending_.size() == kMergeBatch) finish();
}

void BpeModel::MergeWriter::finish() {
  const Vocabulary& vocabulary = model_.vocabulary_;
  model_.reserve_merges(pending_.size());
  for (const Pending& merge : pending_) {
    for (const uint32_t hash : merge.hashes) vocabulary.prefetch_key(hash);
  }
  found_.clear();
  for (const Pending& merge : pending_) {
    const std::string_view keys = std::string_view(keys_).substr(merge.begin);
    const std::string_view left = keys.substr(0, merge.left_length);
    const std::string_view right = keys.substr(merge.left_length, merge.right_length);
    const int32_t left_id = vocabulary.find(left, merge.hashes[0]), right_id = vocabulary.find(right, merge.hashes[1]);
    const int32_t id = vocabulary.find(joined(merge), merge.hashes[2]);
    if (left_id < 0 || right_id < 0 || id < 0) {
      if (unknown_ == Unknown::kSkip) continue;
      throw invalid_argument(
          fmt::format("merges[{}] joins {} and {}, but they or what they make is not in the vocabulary", merge.rank,
                      quote(left), quote(right)),
          "merges");
    }
    const uint64_t pair = pair_of(left_id, right_id);
    __builtin_prefetch(&model_.merges_[model_.slot_of(pair)], 1);
    found_.push_back({pair, merge.rank, id});
    if (model_.bytes_before_marks_) note_bytes_before_marks(joined(merge), *model_.bytes_before_marks_);
  }
  for (const Merge& merge : found_) model_.insert_merge(merge);
  pending_.clear();
  keys_.clear();
}

// Cuts a word into the symbols that merging starts from.
void BpeModel::split(std::string_view word, ModelScratch& scratch) const {
  std::vector<Symbol>& symbols = scratch.symbols;
  symbols.clear();
  symbols.reserve(word.size());
  const auto push = [&](int32_t id) { symbols.push_back({id, kNoRank, 0, 0}); };
  if (vocabulary_.style().byte_level) {
    for (const char c : word) {
      const int32_t id = byte_ids_[static_cast<uint8_t>(c)];
      if (id >= 0 || options_.unknown_id >= 0) push(id >= 0 ? id : options_.unknown_id);
    }
    return;
  }
  // An unknown token waits here until something else follows it, so that the next unknown character can join it.
  int32_t pending_unknown = -1;
  const auto flush_unknown = [&] {
    if (pending_unknown >= 0) push(pending_unknown);
    pending_unknown = -1;
  };
  const bool affixes = has_affixes();
  const char* end = word.data() + word.size();
  for (const char* p = word.data(); p < end;) {
    const char* start = p;
    decode_valid_utf8(p);
    std::string_view character(start, static_cast<size_t>(p - start));
    if (affixes) {
      scratch.key = start == word.data() ? std::string_view() : std::string_view(options_.continuing_prefix);
      scratch.key += character;
      if (p == end) scratch.key += options_.word_suffix;
      character = scratch.key;
    }
    const int32_t id =
        character.size() == 1 ? byte_ids_[static_cast<uint8_t>(character[0])] : vocabulary_.find(character);
    if (id >= 0) {
      flush_unknown();
      push(id);
      continue;
    }
    const auto is_byte_token = [&](char c) { return fallback_ids_[static_cast<uint8_t>(c)] >= 0; };
    if (options_.byte_fallback && std::all_of(character.begin(), character.end(), is_byte_token)) {
      for (const char c : character) push(fallback_ids_[static_cast<uint8_t>(c)]);
      continue;
    }
    if (!options_.fuse_unknown) flush_unknown();
    pending_unknown = options_.unknown_id;
  }
  flush_unknown();
}

void BpeModel::merge_short(std::vector<Symbol>& symbols, std::vector<int32_t>& out) const {
  size_t count = symbols.size();
  for (size_t i = 0; i + 1 < count; ++i) symbols[i].rank = find_merge(symbols[i].id, symbols[i + 1].id).rank;
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (symbols[i].rank < symbols[best].rank) best = i;
    }
    if (symbols[best].rank == kNoRank) break;
    symbols[best].id = find_merge(symbols[best].id, symbols[best + 1].id).id;
    std::copy(symbols.begin() + static_cast<ptrdiff_t>(best) + 2, symbols.begin() + static_cast<ptrdiff_t>(count),
              symbols.begin() + static_cast<ptrdiff_t>(best) + 1);
    --count;
    symbols[count - 1].rank = kNoRank;
    if (best + 1 < count) symbols[best].rank = find_merge(symbols[best].id, symbols[best + 1].id).rank;
    if (best > 0) symbols[best - 1].rank = find_merge(symbols[best - 1].id, symbols[best].id).rank;
  }
  for (size_t i = 0; i < count; ++i) out.push_back(symbols[i].id);
}

// A linked list of symbols, and a queue of the positions that merge with what follows them.
void BpeModel::merge_long(ModelScratch& scratch, std::vector<int32_t>& out) const {
  std::vector<Symbol>& symbols = scratch.symbols;
  MergeQueue& queue = scratch.queue;
  const auto count = static_cast<int32_t>(symbols.size());
  queue.reset(symbols.size());
  const auto update = [&](int32_t at) {
    const Symbol& symbol = symbols[at];
    queue.set(at, symbol.next >= 0 ? find_merge(symbol.id, symbols[symbol.next].id).rank : kNoRank);
  };
  for (int32_t i = 0; i < count; ++i) {
    symbols[i].previous = i - 1;
    symbols[i].next = i + 1 < count ? i + 1 : -1;
    update(i);
  }
  for (int32_t at = queue.pop(); at >= 0; at = queue.pop()) {
    Symbol& symbol = symbols[at];
    const Symbol& merged = symbols[symbol.next];
    queue.set(symbol.next, kNoRank);
    symbol.id = find_merge(symbol.id, merged.id).id;
    symbol.next = merged.next;
    if (symbol.next >= 0) symbols[symbol.next].previous = at;
    if (symbol.previous >= 0) update(symbol.previous);  // first, so that positions come to the queue in rising order
    update(at);
  }
  for (int32_t i = count > 0 ? 0 : -1; i >= 0; i = symbols[i].next) out.push_back(symbols[i].id);
}

void BpeModel::encode(std::string_view word, ModelScratch& scratch, std::vector<int32_t>& out) const {
  if (word.empty()) return;
  int32_t whole = -1;
  if (word.size() <= vocabulary_.longest_key()) {
    std::string_view key = word;
    if (!options_.word_suffix.empty() && !options_.ignore_merges) {  // which looks for the word without it
      scratch.key.assign(word).append(options_.word_suffix);
      key = scratch.key;
    }
    whole = vocabulary_.find(key);
    if (whole >= 0 && (options_.ignore_merges || reachable_[whole].load(std::memory_order_relaxed) == 1)) {
      out.push_back(whole);
      return;
    }
  }
  const size_t before = out.size();
  split(word, scratch);
  if (scratch.symbols.size() <= kShortWord) {
    merge_short(scratch.symbols, out);
  } else {
    merge_long(scratch, out);
  }
  if (whole >= 0) {
    const bool reached = out.size() == before + 1 && out.back() == whole;
    reachable_[whole].store(reached ? 1 : 2, std::memory_order_relaxed);
  }
}

}  // namespace quire
