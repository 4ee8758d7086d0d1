#pragma once
// Regular expressions of tokenizer files, on PCRE2 with limits: patterns come with a model, texts from anyone.
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace quire {

class Regex {
 public:
  // field: of the file, for errors. Throws Error(kInvalidArgument) for a pattern that doesn't compile.
  Regex(const std::string& pattern, const char* field);
  Regex(const Regex&) = delete;
  Regex& operator=(const Regex&) = delete;
  ~Regex();

  // Finds matches in one text, valid UTF-8 that outlives it.
  class Matcher {
   public:
    Matcher(const Regex& regex, std::string_view text);
    Matcher(const Matcher&) = delete;
    Matcher& operator=(const Matcher&) = delete;
    ~Matcher();
    // The first match that is not empty and starts at or after from; false if there is none. Throws
    // Error(kInvalidArgument) when the text needs more than the limits.
    bool find(size_t from, size_t& begin, size_t& end);

   private:
    struct Data;
    const Regex& regex_;
    std::string_view text_;
    std::unique_ptr<Data> data_;
  };

 private:
  struct Code;
  std::string pattern_;
  std::unique_ptr<Code> code_;
};

}  // namespace quire
