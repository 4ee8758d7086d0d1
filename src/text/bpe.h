#pragma once
// Byte-pair encoding of one word: the pair of lowest merge rank first, the leftmost of equals.
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/merge_queue.h"
#include "text/token_model.h"
#include "text/vocabulary.h"

namespace quire {

class BpeModel final : public TokenModel {
  static constexpr uint32_t kNoRank = MergeQueue::kNoRank;
  static constexpr uint64_t kNoPair = UINT64_MAX;
  struct Merge {
    uint64_t pair = kNoPair;  // left << 32 | right
    uint32_t rank = kNoRank;
    int32_t id = -1;
  };

 public:
  struct Options {
    bool ignore_merges = false;  // a word that is a token is that token, whatever merges say
    bool byte_fallback = false;  // a character that is no token becomes <0xNN> tokens
    bool fuse_unknown = false;   // neighbouring unknown characters become one unknown token
    int32_t unknown_id = -1;     // -1: unknown characters are left out
    // How tokens are spelled that go on within a word or end it. Not with a byte-level vocabulary: its words come in
    // the alphabet of that instead.
    std::string continuing_prefix, word_suffix;
  };
  // The vocabulary must be complete and outlive the model.
  BpeModel(const Vocabulary& vocabulary, Options options, size_t expected_merges);

  // Adds merges. They are looked up in batches, which is several times faster than one by one where tables outgrow the
  // caches.
  class MergeWriter {
   public:
    enum class Unknown { kSkip, kThrow };  // what to do if one of the two keys, or both joined, is no token
    MergeWriter(BpeModel& model, Unknown unknown) : model_(model), unknown_(unknown) {}

    // The merge of two keys into their concatenation, where the right one drops the prefix that marks continuation; a
    // pair given again takes the new rank. May throw
    // Error(kInvalidArgument) that names the rank of this merge or one before as an entry of "merges".
    void add(std::string_view left, std::string_view right, uint32_t rank);
    void finish();  // adds what is left; to be called at the end

   private:
    struct Pending {
      size_t begin;  // of left, right, and, if that isn't both in a row, what they make
      uint32_t left_length, right_length, joined_begin, joined_length, rank;
      uint32_t hashes[3];  // of left, right and both
    };
    std::string_view joined(const Pending& merge) const {
      return std::string_view(keys_).substr(merge.begin + merge.joined_begin, merge.joined_length);
    }

    BpeModel& model_;
    Unknown unknown_;
    std::string keys_;
    std::vector<Pending> pending_;
    std::vector<Merge> found_;
  };

  // Appends the tokens of word, valid UTF-8 in the vocabulary's key form. Linear in a run of one
  // character, O(n log n) at worst.
  void encode(std::string_view word, ModelScratch& scratch, std::vector<int32_t>& out) const override;

  // Text of a SentencePiece-like vocabulary may be cut before a U+2581 that follows another character, since no merge
  // joins the two, unless that character ends in one of these bytes. Empty: the vocabulary has no such token, so don't
  // cut.
  const std::optional<std::array<bool, 256>>& bytes_before_marks() const { return bytes_before_marks_; }

 private:
  using Symbol = ModelScratch::Symbol;
  static uint64_t pair_of(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  size_t slot_of(uint64_t pair) const { return (pair * 0x9E3779B97F4A7C15) >> merge_shift_; }
  const Merge& find_merge(int32_t left, int32_t right) const;
  void reserve_merges(size_t more);
  void insert_merge(const Merge& merge);
  bool has_affixes() const { return !options_.continuing_prefix.empty() || !options_.word_suffix.empty(); }
  void split(std::string_view word, ModelScratch& scratch) const;
  void merge_short(std::vector<Symbol>& symbols, std::vector<int32_t>& out) const;
  void merge_long(ModelScratch& scratch, std::vector<int32_t>& out) const;

  const Vocabulary& vocabulary_;
  Options options_;
  std::array<int32_t, 256> byte_ids_;  // byte-level: of each byte; else of each ASCII character, and of <0xNN> below
  std::array<int32_t, 256> fallback_ids_;
  std::vector<Merge> merges_;  // open addressing, at most two thirds full
  int merge_shift_ = 0;
  size_t merge_count_ = 0;
  std::optional<std::array<bool, 256>> bytes_before_marks_;
  // For each token: do merges make it from its own key? 0 = not asked yet, 1 = yes, 2 = no. Filled as words come; any
  // thread finds the same answer, so a relaxed store is enough.
  std::unique_ptr<std::atomic<uint8_t>[]> reachable_;
};

}  // namespace quire
