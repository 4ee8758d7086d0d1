#include "client/answer_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"

namespace quire {
namespace {

constexpr size_t kMaxHeadLine = 64 << 10;
constexpr int kMaxHeaders = 256;

Error failure(const std::string& what) { return {ErrorKind::kUnavailable, what}; }

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return out;
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

}  // namespace

void AnswerParser::reset() {
  std::string line = std::move(line_);  // keeps its memory
  line.clear();
  *this = AnswerParser();
  line_ = std::move(line);
}

AnswerParser::Piece AnswerParser::feed(std::string_view bytes) {
  if (bytes.empty() || state_ == State::kComplete) return {};
  begun_ = true;
  if (state_ == State::kBody || state_ == State::kChunk) {
    Piece piece;
    piece.taken = static_cast<size_t>(std::min<uint64_t>(left_.value_or(bytes.size()), bytes.size()));
    piece.body = bytes.substr(0, piece.taken);
    if (left_) *left_ -= piece.taken;
    if (left_ == uint64_t{0}) state_ = state_ == State::kBody ? State::kComplete : State::kChunkEnd;
    return piece;
  }
  const size_t end = bytes.find('\n');
  if (line_.size() + std::min(end, bytes.size()) > kMaxHeadLine) throw failure("a header of the answer is too long");
  if (end == std::string_view::npos) {
    line_ += bytes;
    return {bytes.size(), {}};
  }
  std::string_view line = bytes.substr(0, end);
  if (!line_.empty()) line = line_ += line;
  if (line.ends_with('\r')) line.remove_suffix(1);
  take_line(line);
  line_.clear();
  return {end + 1, {}};
}

void AnswerParser::take_line(std::string_view line) {
  switch (state_) {
    case State::kStatus:
      take_status(line);
      break;
    case State::kHeaders:
      line.empty() ? end_head() : take_header(line);
      break;
    case State::kChunkSize:
      take_chunk_size(line);
      break;
    case State::kChunkEnd:
      if (!line.empty()) throw failure("a bad chunk in the answer");
      state_ = State::kChunkSize;
      break;
    case State::kTrailers:
      if (line.empty()) state_ = State::kComplete;
      break;
    case State::kBody:
    case State::kChunk:
    case State::kComplete:
      break;  // have no lines
  }
}

void AnswerParser::take_status(std::string_view line) {
  const size_t space = line.find(' ');
  if (!line.starts_with("HTTP/1.") || space == std::string_view::npos) throw failure("the answer is not HTTP");
  const auto [end, error] = std::from_chars(line.data() + space + 1, line.data() + line.size(), status_);
  if (error != std::errc{}) throw failure("the answer is not HTTP");
  reason_ = trim(line.substr(static_cast<size_t>(end - line.data())));
  keep_alive_ = !line.starts_with("HTTP/1.0");
  state_ = State::kHeaders;
}

void AnswerParser::take_header(std::string_view line) {
  if (++headers_ > kMaxHeaders) throw failure(fmt::format("more than {} headers in the answer", kMaxHeaders));
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return;
  const std::string name = lower(line.substr(0, colon));
  const std::string_view value = trim(line.substr(colon + 1));
  if (name == "transfer-encoding" && lower(value).find("chunked") != std::string::npos) chunked_ = true;
  if (name == "connection") keep_alive_ = lower(value).find("close") == std::string::npos;
  if (name == "content-length") {
    uint64_t bytes = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), bytes);
    if (error != std::errc{} || end != value.data() + value.size()) throw failure("a bad Content-Length in the answer");
    left_ = bytes;
  }
}

void AnswerParser::end_head() {
  if (status_ / 100 == 1) {  // comes before the real answer
    state_ = State::kStatus;
    headers_ = 0;
    left_.reset();
    return;
  }
  if (chunked_) {
    left_ = 0;
    state_ = State::kChunkSize;
  } else if (status_ == 204 || status_ == 304 || left_ == uint64_t{0}) {
    state_ = State::kComplete;
  } else {
    if (!left_) keep_alive_ = false;
    state_ = State::kBody;
  }
}

void AnswerParser::take_chunk_size(std::string_view line) {
  uint64_t bytes = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), bytes, 16);
  if (error != std::errc{}) throw failure("a bad chunk in the answer");
  left_ = bytes;
  state_ = bytes == 0 ? State::kTrailers : State::kChunk;
}

void AnswerParser::end() {
  if (state_ == State::kBody && !left_) state_ = State::kComplete;  // no length was given
  if (state_ == State::kComplete) return;
  throw failure(has_head() ? "the connection broke in the middle of the answer" : "the connection broke");
}

}  // namespace quire
