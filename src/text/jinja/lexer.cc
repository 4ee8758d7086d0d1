#include "text/jinja/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "text/jinja/strings.h"
#include "text/unicode.h"

namespace quire::jinja {
namespace {

struct Operator {
  std::string_view text;
  TokenType type;
};
// Longer ones first.
constexpr Operator kOperators[] = {
    {"//", TokenType::kFloorDivide}, {"**", TokenType::kPower},        {"==", TokenType::kEqual},
    {"!=", TokenType::kNotEqual},    {">=", TokenType::kGreaterEqual}, {"<=", TokenType::kLessEqual},
    {"+", TokenType::kAdd},          {"-", TokenType::kSubtract},      {"/", TokenType::kDivide},
    {"*", TokenType::kMultiply},     {"%", TokenType::kModulo},        {"~", TokenType::kTilde},
    {"[", TokenType::kLeftBracket},  {"]", TokenType::kRightBracket},  {"(", TokenType::kLeftParen},
    {")", TokenType::kRightParen},   {"{", TokenType::kLeftBrace},     {"}", TokenType::kRightBrace},
    {">", TokenType::kGreater},      {"<", TokenType::kLess},          {"=", TokenType::kAssign},
    {".", TokenType::kDot},          {":", TokenType::kColon},         {"|", TokenType::kPipe},
    {",", TokenType::kComma},        {";", TokenType::kSemicolon},
};

bool is_ascii_digit(char c) { return c >= '0' && c <= '9'; }

// "\r\n" and "\r" become "\n"; one line end at the end of the template does not count.
std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalize_newlines(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) lex_data();
    push(TokenType::kEnd);
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(std::string reason) const { throw SyntaxError{line_, std::move(reason)}; }

  std::string_view rest() const { return std::string_view(source_).substr(at_); }
  bool looking_at(std::string_view text) const { return rest().starts_with(text); }

  void advance_to(size_t to) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(to), '\n'));
    at_ = to;
    line_starting_ = to > 0 && source_[to - 1] == '\n';
  }
  void advance(size_t bytes) { advance_to(at_ + bytes); }

  size_t spaces_after(size_t from) const {
    const std::string_view tail = std::string_view(source_).substr(from);
    return tail.size() - strip(tail, Side::kLeft).size();
  }

  Token& push(TokenType type) {
    tokens_.push_back({type, line_, {}, 0, 0});
    return tokens_.back();
  }

  // Text before a tag that begins with `sign`, as the tag leaves it.
  void push_data(std::string_view text, char sign, bool strips_indent) {
    if (sign == '-') {
      text = strip(text, Side::kRight);
    } else if (sign != '+' && strips_indent) {
      const size_t line_begin = text.rfind('\n') + 1;  // 0 if there is none
      if ((line_begin > 0 || line_starting_) && strip(text.substr(line_begin), Side::kLeft).empty()) {
        text = text.substr(0, line_begin);
      }
    }
    if (!text.empty()) push(TokenType::kData).text = text;
  }

  char sign_at(size_t at) const {
    return at < source_.size() && (source_[at] == '-' || source_[at] == '+') ? source_[at] : '\0';
  }

  // Length of an end tag like "-%}" at `at` with the white space that it takes; 0 if none is there.
  size_t end_tag(size_t at, std::string_view close, bool is_block) const {
    const std::string_view tail = std::string_view(source_).substr(at);
    if (tail.starts_with('-') && tail.substr(1).starts_with(close)) {
      return 1 + close.size() + spaces_after(at + 1 + close.size());
    }
    if (is_block && tail.starts_with('+') && tail.substr(1).starts_with(close)) return 1 + close.size();
    if (!tail.starts_with(close)) return 0;
    return close.size() + (is_block && tail.substr(close.size()).starts_with('\n') ? 1 : 0);
  }

  // If "{%" at `at` opens a tag of just that word, the length up to the word's end and the white space after it.
  std::optional<size_t> word_tag(size_t at, std::string_view word) const {
    size_t p = at + 2 + (sign_at(at + 2) ? 1 : 0);
    p += spaces_after(p);
    if (!std::string_view(source_).substr(p).starts_with(word)) return std::nullopt;
    p += word.size();
    return p + spaces_after(p) - at;
  }

  void lex_data() {
    size_t tag = at_;
    while (true) {
      tag = source_.find('{', tag);
      if (tag == std::string::npos || tag + 1 >= source_.size()) {
        push(TokenType::kData).text = rest();
        advance_to(source_.size());
        return;
      }
      const char next = source_[tag + 1];
      if (next == '{' || next == '%' || next == '#') break;
      ++tag;
    }
    const char sign = sign_at(tag + 2);
    const char type = source_[tag + 1];
    push_data(rest().substr(0, tag - at_), sign, type != '{');
    advance_to(tag);
    if (type == '#') {
      lex_comment();
    } else if (type == '{') {
      push(TokenType::kVariableBegin);
      advance(sign ? 3 : 2);
      lex_tag("}}", TokenType::kVariableEnd);
    } else if (!lex_raw()) {
      push(TokenType::kBlockBegin);
      advance(sign ? 3 : 2);
      lex_tag("%}", TokenType::kBlockEnd);
    }
  }

  void lex_comment() {
    const size_t content = at_ + 2 + (sign_at(at_ + 2) ? 1 : 0);
    const size_t close = source_.find("#}", content);
    if (close == std::string::npos) fail("Missing end of comment tag");
    const bool has_sign = close > content && sign_at(close - 1);
    const size_t end = has_sign ? close - 1 : close;
    advance_to(end + end_tag(end, "#}", true));
  }

  bool lex_raw() {
    const std::optional<size_t> opening = word_tag(at_, "raw");
    if (!opening) return false;
    const size_t close = at_ + *opening;
    const size_t close_size = looking_at_from(close, "-%}")  ? 3 + spaces_after(close + 3)
                              : looking_at_from(close, "%}") ? 2
                                                             : 0;
    if (close_size == 0) return false;
    advance_to(close + close_size);
    for (size_t tag = source_.find("{%", at_); tag != std::string::npos; tag = source_.find("{%", tag + 2)) {
      const std::optional<size_t> ending = word_tag(tag, "endraw");
      if (!ending) continue;
      const size_t end_size = end_tag(tag + *ending, "%}", true);
      if (end_size == 0) continue;
      push_data(rest().substr(0, tag - at_), sign_at(tag + 2), true);
      advance_to(tag + *ending + end_size);
      return true;
    }
    fail("Missing end of raw directive");
  }

  bool looking_at_from(size_t at, std::string_view text) const {
    return std::string_view(source_).substr(at).starts_with(text);
  }

  void lex_tag(std::string_view close, TokenType close_type) {
    std::string open;  // brackets that wait for their partner
    while (at_ < source_.size()) {
      if (open.empty()) {
        if (const size_t size = end_tag(at_, close, close_type == TokenType::kBlockEnd)) {
          push(close_type);
          advance(size);
          return;
        }
      }
      if (const size_t spaces = spaces_after(at_)) {
        advance(spaces);
        continue;
      }
      const char c = source_[at_];
      if (is_ascii_digit(c)) {
        lex_number();
      } else if (c == '\'' || c == '"') {
        lex_string(c);
      } else if (const size_t size = name_size()) {
        push(TokenType::kName).text = rest().substr(0, size);
        advance(size);
      } else {
        lex_operator(open);
      }
    }
  }

  size_t name_size() const {
    const char* const begin = source_.data() + at_;
    const char* const end = source_.data() + source_.size();
    const char* p = begin;
    while (p < end) {
      const char* next = p;
      if (!is_word(next_character(next, end))) break;
      p = next;
    }
    return static_cast<size_t>(p - begin);
  }

  // Digits with single underscores between them; 0 if there is no digit.
  size_t digits_size(size_t from) const {
    size_t p = from;
    while (p < source_.size() &&
           (is_ascii_digit(source_[p]) ||
            (source_[p] == '_' && p > from && p + 1 < source_.size() && is_ascii_digit(source_[p + 1])))) {
      ++p;
    }
    return p - from;
  }

  void lex_number() {
    const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
    const size_t whole = digits_size(at_);
    size_t end = at_ + whole;
    bool is_real = false;
    if (!after_dot) {
      if (end < source_.size() && source_[end] == '.') {
        if (const size_t fraction = digits_size(end + 1)) {
          end += 1 + fraction;
          is_real = true;
        }
      }
      if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
        const size_t digits = end + 1 + (sign_at(end + 1) ? 1 : 0);
        if (const size_t exponent = digits_size(digits)) {
          end = digits + exponent;
          is_real = true;
        }
      }
    }
    const char* const marker = source_.data() + at_ + 1;
    if (!is_real && whole == 1 && source_[at_] == '0' && at_ + 1 < source_.size() &&
        std::string_view("xXoObB").find(*marker) != std::string_view::npos) {
      end = at_ + name_size();
    }
    const std::string_view text = rest().substr(0, end - at_);
    Token& token = push(is_real ? TokenType::kFloat : TokenType::kInteger);
    if (is_real) {
      if (!parse_real(text, token.real)) fail(fmt::format("'{}' is not a number", text));
    } else {
      const IntegerParse result = parse_integer(text, 0, token.integer);
      if (result == IntegerParse::kTooLarge) fail(fmt::format("the integer {} does not fit in 64 bits", text));
      if (result == IntegerParse::kInvalid) fail(fmt::format("'{}' is not a number", text));
    }
    advance_to(end);
  }

  void lex_string(char quote) {
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) fail(fmt::format("unexpected char '{}': the string does not end", quote));
    std::string text = unescape(rest().substr(1, end - at_ - 1));
    push(TokenType::kString).text = std::move(text);
    advance_to(end + 1);
  }

  std::string unescape(std::string_view text) const {
    std::string out;
    out.reserve(text.size());
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '\\') {
        out += text[i];
        continue;
      }
      const char c = text[++i];  // a string never ends in a lone backslash
      switch (c) {
        case '\n':
          break;
        case 'n':
          out += '\n';
          break;
        case 't':
          out += '\t';
          break;
        case 'r':
          out += '\r';
          break;
        case 'a':
          out += '\a';
          break;
        case 'b':
          out += '\b';
          break;
        case 'f':
          out += '\f';
          break;
        case 'v':
          out += '\v';
          break;
        case '\\':
        case '\'':
        case '"':
          out += c;
          break;
        case 'x':
          i += append_code(out, text.substr(i + 1), 2);
          break;
        case 'u':
          i += append_code(out, text.substr(i + 1), 4);
          break;
        case 'U':
          i += append_code(out, text.substr(i + 1), 8);
          break;
        case 'N':
          fail("\\N escapes are not supported");
        default:
          if (c >= '0' && c <= '7') {
            uint32_t code = 0;
            size_t digits = 0;
            while (digits < 3 && i + digits < text.size() && text[i + digits] >= '0' && text[i + digits] <= '7') {
              code = code * 8 + static_cast<uint32_t>(text[i + digits++] - '0');
            }
            append_utf8(out, code);
            i += digits - 1;
          } else {
            out += '\\';
            out += c;
          }
      }
    }
    return out;
  }

  size_t append_code(std::string& out, std::string_view text, size_t digits) const {
    int64_t code = -1;
    const std::string_view number = text.substr(0, digits);
    const bool plain = std::all_of(number.begin(), number.end(), [](unsigned char c) { return std::isxdigit(c) != 0; });
    if (number.size() != digits || !plain || parse_integer(number, 16, code) != IntegerParse::kOk) {
      fail("truncated \\x, \\u or \\U escape in a string");
    }
    if (code > 0x10FFFF) fail("illegal Unicode character in a string");
    append_utf8(out, code >= 0xD800 && code < 0xE000 ? 0xFFFD : static_cast<char32_t>(code));
    return digits;
  }

  void lex_operator(std::string& open) {
    const auto* const found = std::find_if(std::begin(kOperators), std::end(kOperators),
                                           [this](const Operator& op) { return looking_at(op.text); });
    if (found == std::end(kOperators)) fail(fmt::format("unexpected char '{}'", first_character(rest())));
    const char c = found->text[0];
    if (c == '(' || c == '[' || c == '{') {
      open += c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
      if (open.empty()) fail(fmt::format("unexpected '{}'", c));
      if (open.back() != c) fail(fmt::format("unexpected '{}', expected '{}'", c, open.back()));
      open.pop_back();
    }
    push(found->type);
    advance(found->text.size());
  }

  const std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;  // did what came before end in a line end?
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) { return Lexer(source).run(); }

std::string_view describe(TokenType type) {
  switch (type) {
    case TokenType::kData:
      return "template data / text";
    case TokenType::kVariableBegin:
      return "begin of print statement";
    case TokenType::kVariableEnd:
      return "end of print statement";
    case TokenType::kBlockBegin:
      return "begin of statement block";
    case TokenType::kBlockEnd:
      return "end of statement block";
    case TokenType::kName:
      return "name";
    case TokenType::kString:
      return "string";
    case TokenType::kInteger:
      return "integer";
    case TokenType::kFloat:
      return "float";
    case TokenType::kEnd:
      return "end of template";
    default:
      break;
  }
  for (const Operator& op : kOperators) {
    if (op.type == type) return op.text;
  }
  return "?";
}

std::string describe(const Token& token) {
  return fmt::format("'{}'", token.type == TokenType::kName ? std::string_view(token.text) : describe(token.type));
}

}  // namespace quire::jinja
