#include "text/regex.h"

#include <fmt/format.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <new>

#include "base/error.h"
#include "base/quote.h"

namespace quire {
namespace {

constexpr uint32_t kMatchLimit = 200'000;      // backtracking steps of one match
constexpr uint32_t kHeapLimitKib = 64 * 1024;  // memory of one match

std::string message(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

struct Free {
  void operator()(pcre2_code* p) const { pcre2_code_free(p); }
  void operator()(pcre2_match_context* p) const { pcre2_match_context_free(p); }
  void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
};

}  // namespace

struct Regex::Code {
  std::unique_ptr<pcre2_code, Free> compiled;
  std::unique_ptr<pcre2_match_context, Free> context;
};

Regex::Regex(const std::string& pattern, const char* field) : pattern_(pattern), code_(std::make_unique<Code>()) {
  int code = 0;
  PCRE2_SIZE offset = 0;
  code_->compiled.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                      PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &code, &offset, nullptr));
  if (!code_->compiled) {
    throw invalid_argument(
        fmt::format("{}: pattern {} does not compile: {} at offset {}", field, quote(pattern), message(code), offset),
        field);
  }
  code_->context.reset(pcre2_match_context_create(nullptr));
  if (!code_->context) throw std::bad_alloc();
  pcre2_set_match_limit(code_->context.get(), kMatchLimit);
  pcre2_set_heap_limit(code_->context.get(), kHeapLimitKib);
}

Regex::~Regex() = default;

struct Regex::Matcher::Data {
  std::unique_ptr<pcre2_match_data, Free> match;
};

Regex::Matcher::Matcher(const Regex& regex, std::string_view text)
    : regex_(regex), text_(text), data_(std::make_unique<Data>()) {
  data_->match.reset(pcre2_match_data_create(1, nullptr));
  if (!data_->match) throw std::bad_alloc();
}

Regex::Matcher::~Matcher() = default;

bool Regex::Matcher::find(size_t from, size_t& begin, size_t& end) {
  const Code& code = *regex_.code_;
  const int result = pcre2_match(code.compiled.get(), reinterpret_cast<PCRE2_SPTR>(text_.data()), text_.size(), from,
                                 PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, data_->match.get(), code.context.get());
  if (result == PCRE2_ERROR_NOMATCH) return false;
  if (result < 0) {
    throw invalid_argument(
        fmt::format("the text can't be split by the tokenizer's pattern {}: {} (limits: {} steps, {} KiB)",
                    quote(regex_.pattern_), message(result), kMatchLimit, kHeapLimitKib),
        "prompt");
  }
  const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(data_->match.get());
  begin = ends[0];
  end = ends[1];
  return begin >= from && begin < end;  // \K could turn the two around
}

}  // namespace quire
