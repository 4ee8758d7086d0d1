// Filters that lay text out: lines of a width, sizes for people, attributes of markup.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "base/quote.h"
#include "text/jinja/filters.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/jinja/strings.h"

namespace quire::jinja {
namespace {

using std::string_view;

bool is_ascii_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// One line, cut where Python's textwrap lets it break: before and after white space, after a hyphen between letters,
// and around dashes of two or more.
class Pieces {
 public:
  struct Piece {
    string_view text;
    size_t characters;
  };

  Pieces(string_view line, bool break_on_hyphens) {
    codes_.reserve(line.size());
    for (const char* p = line.data(); p < line.data() + line.size();) {
      starts_.push_back(static_cast<size_t>(p - line.data()));
      codes_.push_back(next_character(p, line.data() + line.size()));
    }
    starts_.push_back(line.size());
    for (size_t begin = 0; begin < codes_.size();) {
      const size_t end = space(begin)       ? end_of_spaces(begin)
                         : break_on_hyphens ? end_of_part(begin)
                                            : end_of_word(begin);
      pieces_.push_back({line.substr(starts_[begin], starts_[end] - starts_[begin]), end - begin});
      begin = end;
    }
  }

  std::vector<Piece> take() { return std::move(pieces_); }

 private:
  bool space(size_t i) const { return codes_[i] < 0x80 && is_ascii_space(static_cast<char>(codes_[i])); }
  bool word(size_t i) const { return i < codes_.size() && is_word(codes_[i]); }
  bool letter(size_t i) const { return word(i) && !is_digit(codes_[i]); }
  bool hyphen(size_t i) const { return i < codes_.size() && codes_[i] == '-'; }
  bool before_dash(size_t i) const {
    return i < codes_.size() &&
           (is_word(codes_[i]) || (codes_[i] < 0x80 && codes_[i] != 0 &&
                                   string_view("!\"'&.,?").find(static_cast<char>(codes_[i])) != string_view::npos));
  }
  size_t end_of_spaces(size_t i) const {
    while (i < codes_.size() && space(i)) ++i;
    return i;
  }
  size_t end_of_word(size_t i) const {
    while (i < codes_.size() && !space(i)) ++i;
    return i;
  }
  // The end of the dash that begins at i, if it is one between words, else i.
  size_t end_of_dash(size_t i) const {
    if (i == 0 || !before_dash(i - 1)) return i;
    size_t end = i;
    while (hyphen(end)) ++end;
    return end - i >= 2 && word(end) ? end : i;
  }
  // A hyphen at i joins words: two letters, or letter, hyphen, letter, before it, and the like after it.
  bool joins(size_t i) const {
    if (!hyphen(i) || i < 2 || !letter(i - 1)) return false;
    const bool before = letter(i - 2) || (hyphen(i - 2) && i >= 3 && letter(i - 3));
    return before && letter(i + 1) && (letter(i + 2) || (hyphen(i + 2) && letter(i + 3)));
  }
  size_t end_of_part(size_t begin) const {
    if (const size_t end = end_of_dash(begin); end != begin) return end;
    for (size_t i = begin + 1;; ++i) {
      if (i == codes_.size() || space(i) || end_of_dash(i) != i) return i;
      if (joins(i)) return i + 1;
    }
  }

  std::vector<char32_t> codes_;
  std::vector<size_t> starts_;  // byte offset of each character, and the end
  std::vector<Piece> pieces_;
};

bool is_blank(string_view text) { return strip(text, Side::kBoth).empty(); }

// Fills lines with pieces as textwrap does: white space goes at the ends of lines, a piece that fits no line is cut.
class LineFiller {
 public:
  LineFiller(size_t width, bool break_long, bool break_on_hyphens)
      : width_(width), break_long_(break_long), break_on_hyphens_(break_on_hyphens) {}

  std::vector<std::string> fill(std::vector<Pieces::Piece> pieces) {
    std::vector<std::string> lines;
    for (size_t next = 0; next < pieces.size();) {
      if (!lines.empty() && is_blank(pieces[next].text)) ++next;
      std::vector<string_view> line;
      size_t used = 0;
      for (; next < pieces.size() && used + pieces[next].characters <= width_; ++next) {
        line.push_back(pieces[next].text);
        used += pieces[next].characters;
      }
      if (next < pieces.size() && pieces[next].characters > width_) {
        if (break_long_) {
          line.push_back(cut(pieces[next], width_ - used));
        } else if (line.empty()) {
          line.push_back(pieces[next++].text);
        }
      }
      if (!line.empty() && is_blank(line.back())) line.pop_back();
      if (line.empty()) continue;
      std::string& text = lines.emplace_back();
      for (const string_view piece : line) text += piece;
    }
    return lines;
  }

 private:
  // Takes what fits into `room` characters off the piece: up to its last hyphen, if there is something to keep before.
  string_view cut(Pieces::Piece& piece, size_t room) const {
    size_t bytes = byte_offset(piece.text, room);
    if (break_on_hyphens_) {
      const size_t hyphen = piece.text.substr(0, bytes).rfind('-');
      if (hyphen != string_view::npos && hyphen > 0 &&
          piece.text.substr(0, hyphen).find_first_not_of('-') != string_view::npos) {
        bytes = hyphen + 1;
      }
    }
    const string_view taken = piece.text.substr(0, bytes);
    piece.text.remove_prefix(bytes);
    piece.characters -= count_characters(taken);
    return taken;
  }

  size_t width_;
  bool break_long_, break_on_hyphens_;
};

Value filter_wordwrap(Interpreter& in, const Value& input, const Arguments& arguments) {
  const Parameters p("wordwrap", arguments, {"width", "break_long_words", "wrapstring", "break_on_hyphens"});
  if (!input.is_string()) fail(fmt::format("wordwrap needs a string, not {}", type_name(input)));
  const int64_t width = p.integer(0, 79);
  const bool break_long = p.flag(1, true), break_on_hyphens = p.flag(3, true);
  const string_view end = p.text(2, "\n");
  in.arena().scan(4 * input.text().size());
  std::string out;
  bool first = true;
  for (const string_view paragraph : split_lines(input.text(), false)) {
    if (width <= 0) fail(fmt::format("wordwrap: the width {} is not positive", width));
    LineFiller filler(static_cast<size_t>(width), break_long, break_on_hyphens);
    std::vector<std::string> lines = filler.fill(Pieces(paragraph, break_on_hyphens).take());
    if (lines.empty()) lines.emplace_back();
    for (const std::string& line : lines) {
      if (!first) out += end;
      first = false;
      out += line;
      if (out.size() > Arena::kMaxText) fail("wordwrap: the result is too long");
    }
  }
  return Value::string(in.arena(), std::move(out));
}

Value filter_filesizeformat(Interpreter& in, const Value& input, const Arguments& arguments) {
  const Parameters p("filesizeformat", arguments, {"binary"});
  const bool binary = p.flag(0, false);
  double size = 0;
  if (input.is_string()) in.arena().scan(input.text().size());
  if (input.is_number()) {
    size = input.as_real();
  } else if (!input.is_string() || !parse_real(input.text(), size)) {
    fail(fmt::format("filesizeformat needs a number, not {}", type_name(input)));
  }
  if (std::isnan(size) || size == -INFINITY) fail("filesizeformat: the size is not finite");
  if (size == 1) return Value::string(in.arena(), "1 Byte");
  const double base = binary ? 1024 : 1000;
  if (size < base) return Value::string(in.arena(), fmt::format("{:.0f} Bytes", std::trunc(size) + 0.0));
  constexpr string_view kPrefixes = "kMGTPEZY";
  double unit = base;
  size_t power = 0;
  for (; power + 1 < kPrefixes.size() && size >= unit * base; ++power) unit *= base;
  const char prefix = binary && power == 0 ? 'K' : kPrefixes[power];
  return Value::string(in.arena(), fmt::format("{:.1f} {}{}B", base * size / (unit * base), prefix, binary ? "i" : ""));
}

Value filter_xmlattr(Interpreter& in, const Value& input, const Arguments& arguments) {
  const Parameters p("xmlattr", arguments, {"autospace"});
  if (!input.is_dict()) fail(fmt::format("xmlattr needs a dict, not {}", type_name(input)));
  std::string out;
  for (const auto& [key, value] : input.dict().entries) {
    in.arena().step();
    if (value.is_none() || value.is_undefined()) continue;
    if (!key.is_string()) fail(fmt::format("xmlattr: a name is {}, not a string", type_name(key)));
    const string_view name = key.text();
    const bool bad = std::any_of(name.begin(), name.end(),
                                 [](char c) { return is_ascii_space(c) || c == '/' || c == '>' || c == '='; });
    if (bad) fail("xmlattr: an attribute can't be named " + quote(name));
    if (!out.empty() || p.flag(0, true)) out += ' ';
    out += fmt::format("{}=\"{}\"", escape_markup(name), escape_markup(to_str(value)));
    if (out.size() > Arena::kMaxText) fail("xmlattr: the result is too long");
  }
  return Value::string(in.arena(), std::move(out));
}

constexpr FilterEntry kFilters[] = {
    {"wordwrap", filter_wordwrap},
    {"filesizeformat", filter_filesizeformat},
    {"xmlattr", filter_xmlattr},
};

}  // namespace

std::span<const FilterEntry> layout_filters() { return kFilters; }

}  // namespace quire::jinja
