#pragma once
// Cuts a template into tokens; white-space control (trim_blocks, lstrip_blocks, "-" and "+") is done here.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quire::jinja {

enum class TokenType : uint8_t {
  kData,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kEnd,
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kTilde,
  kPipe,
  kDot,
  kComma,
  kColon,
  kAssign,
  kSemicolon,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kLeftParen,
  kRightParen,
  kLeftBracket,
  kRightBracket,
  kLeftBrace,
  kRightBrace,
};

struct Token {
  TokenType type = TokenType::kEnd;
  int line = 1;
  std::string text;     // data and strings unescaped, names as written, numbers without underscores
  int64_t integer = 0;  // of kInteger
  double real = 0;      // of kFloat
};

// The parse error; the template's constructor makes it an Error.
struct SyntaxError {
  int line;
  std::string reason;
};

// Ends with a kEnd token. Throws SyntaxError. source must be valid UTF-8.
std::vector<Token> tokenize(std::string_view source);

// For messages: "'name'", "end of print statement".
std::string describe(const Token& token);
std::string_view describe(TokenType type);

}  // namespace quire::jinja
