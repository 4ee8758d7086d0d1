#pragma once
// Python's str operations on UTF-8. Positions count code points unless said otherwise; a byte that is not UTF-8 counts
// as one character, U+FFFD.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quire::jinja {

// Decodes the character at p < end and moves p past it.
char32_t next_character(const char*& p, const char* end);

size_t count_characters(std::string_view text);
// Byte offset of the index-th character; text.size() if there are fewer.
size_t byte_offset(std::string_view text, size_t index);
// The bytes of the character that starts text (not empty).
std::string_view first_character(std::string_view text);

bool is_space(char32_t code);      // str.isspace
bool is_printable(char32_t code);  // str.isprintable
bool is_digit(char32_t code);      // str.isdigit
bool is_alpha(char32_t code);
bool is_numeric(char32_t code);
bool is_word(char32_t code);  // \w
bool is_upper(char32_t code);
bool is_lower(char32_t code);

enum class Side { kLeft = 1, kRight = 2, kBoth = 3 };
std::string_view strip(std::string_view text, Side side);
std::string_view strip(std::string_view text, std::string_view characters, Side side);

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string capitalize(std::string_view text);
std::string to_title(std::string_view text);  // str.title
std::string swap_case(std::string_view text);

// Bytes offsets; npos if absent.
size_t find(std::string_view text, std::string_view part, size_t from = 0);
size_t rfind(std::string_view text, std::string_view part);
size_t count_parts(std::string_view text, std::string_view part);
// limit < 0: all. An empty old part is inserted between all characters. Throws Failure if the result is longer than
// Arena::kMaxText.
std::string replace(std::string_view text, std::string_view old_part, std::string_view new_part, int64_t limit);

// All throw Failure for more than some hundred thousand parts. At white space; limit < 0: no limit.
std::vector<std::string_view> split_space(std::string_view text, int64_t limit);
std::vector<std::string_view> split_space_from_right(std::string_view text, int64_t limit);
std::vector<std::string_view> split(std::string_view text, std::string_view separator, int64_t limit);
std::vector<std::string_view> split_from_right(std::string_view text, std::string_view separator, int64_t limit);
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);

// Appends \xNN, \uNNNN or \UNNNNNNNN, whichever holds the code point.
void append_escape(std::string& out, char32_t code);
// Appends as repr() prints it.
void append_quoted(std::string& out, std::string_view text);

// What float() and int() accept; false if the text is not a number.
bool parse_real(std::string_view text, double& value);
enum class IntegerParse { kOk, kInvalid, kTooLarge };
IntegerParse parse_integer(std::string_view text, int base, int64_t& value);  // base 0, 2..36

}  // namespace quire::jinja
