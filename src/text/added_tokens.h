#pragma once
// Finds added tokens ("<|im_end|>") in text: leftmost first, then longest, with the flags of Hugging Face tokenizers.
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

struct AddedToken {
  int32_t id = -1;
  std::string content;
  bool special = false;      // a control token
  bool normalized = false;   // looked for in normalized text, else in the text as given
  bool lstrip = false;       // takes the white space to its left with it
  bool rstrip = false;       // and to its right
  bool single_word = false;  // only where no letter, digit or underscore touches it
};

class AddedTokenFinder {
 public:
  static constexpr size_t kMaxContent = 4096;  // bytes; bounds the work at each position of a text

  AddedTokenFinder() : first_bytes_{}, nodes_(1) {}
  // Throws Error(kInvalidArgument) if the content is too long; an empty one is ignored. The last of equal contents
  // counts.
  void add(const AddedToken& token);

  bool empty() const { return tokens_.empty(); }

  // Calls visit(piece, id) for every part of text in order: id is -1 for what lies between added tokens (never empty).
  template <class Visit>
  void split(std::string_view text, Visit&& visit) const {
    size_t done = 0;
    Match match;
    for (size_t at = 0; find(text, at, done, match); at = match.next) {
      if (done < match.begin) visit(text.substr(done, match.begin - done), -1);
      visit(text.substr(match.begin, match.end - match.begin), match.id);
      done = match.end;
    }
    if (done < text.size()) visit(text.substr(done), -1);
  }

 private:
  struct Edge {
    uint8_t byte;
    int32_t node;
  };
  struct Node {
    std::vector<Edge> edges;  // sorted by byte
    int32_t token = -1;       // index of the token that ends here
  };
  struct Match {
    size_t begin, end;  // with stripped white space
    size_t next;        // where to look on
    int32_t id;
  };

  int32_t child(int32_t node, uint8_t byte) const;
  // The first match that starts at or after `from`; white space before `floor` belongs to the match before.
  bool find(std::string_view text, size_t from, size_t floor, Match& match) const;

  struct Flags {
    int32_t id;
    bool lstrip, rstrip, single_word;
  };
  std::array<bool, 256> first_bytes_;
  std::vector<Node> nodes_;  // a trie; node 0 is the root
  std::vector<Flags> tokens_;
};

}  // namespace quire
