#include "server/http_head.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace quire {
namespace {

constexpr size_t kMaxTarget = 16 << 10;
constexpr size_t kMaxChunkLine = 4 << 10;

// -1 if it is none.
int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

bool is_token_char(char c) {
  static constexpr std::string_view kPunctuation = "!#$%&'*+-.^_`|~";
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         kPunctuation.find(c) != std::string_view::npos;
}

bool is_token(std::string_view text) { return !text.empty() && std::ranges::all_of(text, is_token_char); }

// Field values: visible characters, blanks and bytes above 0x7f.
bool is_value_char(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte == '\t' || (byte >= 0x20 && byte != 0x7f);
}

std::string_view trim_blanks(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

HttpHead fault(int status, const char* reason) {
  HttpHead head;
  head.fault = status;
  head.reason = reason;
  return head;
}

bool list_contains(std::string_view list, std::string_view word) {
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    if (equal_ignoring_case(trim_blanks(list.substr(0, comma)), word)) return true;
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return false;
}

std::optional<uint64_t> parse_length(std::string_view text) {
  uint64_t value = 0;
  if (text.empty() || text.front() < '0' || text.front() > '9') return std::nullopt;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// The request line without its CR LF; fills head.
bool parse_request_line(std::string_view line, HttpHead& head) {
  const auto fail = [&](int status, const char* reason) {
    head = fault(status, reason);
    return false;
  };
  const size_t first = line.find(' ');
  const size_t last = line.rfind(' ');
  if (first == std::string_view::npos || first == last) return fail(400, "request line is not METHOD TARGET VERSION");
  const std::string_view method = line.substr(0, first);
  const std::string_view target = line.substr(first + 1, last - first - 1);
  const std::string_view version = line.substr(last + 1);
  if (!is_token(method)) return fail(400, "bad method");
  if (version.size() != 8 || !version.starts_with("HTTP/") || version[6] != '.') return fail(400, "bad HTTP version");
  if (version[5] != '1' || (version[7] != '0' && version[7] != '1'))
    return fail(505, "only HTTP/1.0 and HTTP/1.1 are spoken here");
  if (target.size() > kMaxTarget) return fail(414, "request target is longer than 16384 bytes");
  const auto is_target_char = [](char c) {
    return static_cast<unsigned char>(c) > 0x20 && static_cast<unsigned char>(c) != 0x7f;
  };
  if (target.empty() || !std::ranges::all_of(target, is_target_char)) return fail(400, "bad request target");

  head.version_minor = version[7] - '0';
  head.request.method = method;
  std::string_view origin = target;
  if (origin.starts_with("http://") || origin.starts_with("https://")) {  // absolute form, as proxies send it
    const size_t slash = origin.find('/', origin.find("//") + 2);
    origin = slash == std::string_view::npos ? "/" : origin.substr(slash);
  }
  origin = origin.substr(0, origin.find('#'));
  const size_t mark = origin.find('?');
  head.request.path = origin.substr(0, mark);
  if (mark != std::string_view::npos) head.request.query = origin.substr(mark + 1);
  return true;
}

// What the framing headers say together.
HttpHead check_framing(HttpHead head) {
  int hosts = 0, lengths = 0, codings = 0;
  bool close = false, keep = false;
  for (const auto& [name, value] : head.request.headers) {
    if (equal_ignoring_case(name, "host")) {
      ++hosts;
    } else if (equal_ignoring_case(name, "content-length")) {
      ++lengths;
      head.content_length = parse_length(value);
      if (!head.content_length) return fault(400, "bad Content-Length");
    } else if (equal_ignoring_case(name, "transfer-encoding")) {
      ++codings;
      head.chunked = equal_ignoring_case(value, "chunked");
      if (!head.chunked) return fault(501, "the only Transfer-Encoding spoken here is chunked");
    } else if (equal_ignoring_case(name, "connection")) {
      close = close || list_contains(value, "close");
      keep = keep || list_contains(value, "keep-alive");
    } else if (equal_ignoring_case(name, "expect")) {
      if (!equal_ignoring_case(value, "100-continue")) return fault(417, "the only Expect spoken here is 100-continue");
      head.expect_continue = head.version_minor == 1;
    }
  }
  if (hosts > 1 || (hosts == 0 && head.version_minor == 1)) return fault(400, "exactly one Host header is needed");
  if (lengths > 1) return fault(400, "more than one Content-Length");
  if (codings > 1) return fault(400, "more than one Transfer-Encoding");
  if (codings > 0 && lengths > 0) return fault(400, "both Content-Length and Transfer-Encoding");
  if (codings > 0 && head.version_minor == 0) return fault(400, "Transfer-Encoding in HTTP/1.0");
  head.keep_alive = head.version_minor == 1 ? !close : keep && !close;
  return head;
}

}  // namespace

HttpHead parse_http_head(std::string_view text, const ServerConfig& limits) {
  HttpHead head;
  bool first_line = true;
  while (true) {
    const size_t end = text.find("\r\n");
    if (end == std::string_view::npos) return fault(400, "head without an empty line");
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 2);
    if (first_line) {
      if (!parse_request_line(line, head)) return head;
      first_line = false;
      continue;
    }
    if (line.empty()) break;
    if (line.front() == ' ' || line.front() == '\t') return fault(400, "folded header line");
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos || !is_token(line.substr(0, colon))) return fault(400, "bad header name");
    const std::string_view value = trim_blanks(line.substr(colon + 1));
    if (!std::ranges::all_of(value, is_value_char)) return fault(400, "control character in a header");
    if (head.request.headers.size() >= static_cast<size_t>(std::max(limits.h11_max_header_count, 1))) {
      return fault(431, "too many headers");
    }
    head.request.headers.emplace_back(line.substr(0, colon), value);
  }
  return check_framing(std::move(head));
}

bool ChunkedDecoder::feed(std::string_view& input, std::string& body) {
  while (!input.empty() && state_ != State::kDone) {
    if (state_ == State::kData) {
      const size_t take = std::min<uint64_t>(remaining_, input.size());
      body.append(input.substr(0, take));
      input.remove_prefix(take);
      remaining_ -= take;
      if (remaining_ == 0) state_ = State::kDataCr;
      continue;
    }
    const char c = input.front();
    input.remove_prefix(1);
    switch (state_) {
      case State::kSize: {
        const int digit = hex_digit(c);
        if (digit >= 0) {
          if (++digits_ > 15) return false;
          remaining_ = remaining_ * 16 + static_cast<uint64_t>(digit);
        } else if (digits_ > 0 && c == '\r') {
          state_ = State::kSizeLf;
        } else if (digits_ > 0 && (c == ';' || c == ' ' || c == '\t')) {
          line_bytes_ = 0;
          state_ = State::kExtension;
        } else {
          return false;
        }
        break;
      }
      case State::kExtension:
        if (c == '\r') {
          state_ = State::kSizeLf;
        } else if (!is_value_char(c) || ++line_bytes_ > kMaxChunkLine) {
          return false;
        }
        break;
      case State::kSizeLf:
        if (c != '\n') return false;
        digits_ = 0;
        line_bytes_ = 0;
        state_ = remaining_ > 0 ? State::kData : State::kTrailer;
        break;
      case State::kDataCr:
        if (c != '\r') return false;
        state_ = State::kDataLf;
        break;
      case State::kDataLf:
        if (c != '\n') return false;
        state_ = State::kSize;
        break;
      case State::kTrailer:  // line_bytes_ counts all trailers; digits_ the bytes of this line
        if (c == '\r') {
          state_ = digits_ == 0 ? State::kEndLf : State::kTrailerLf;
        } else if (!is_value_char(c) || ++line_bytes_ > kMaxChunkLine) {
          return false;
        } else {
          ++digits_;
        }
        break;
      case State::kTrailerLf:
        if (c != '\n') return false;
        digits_ = 0;
        state_ = State::kTrailer;
        break;
      case State::kEndLf:
        if (c != '\n') return false;
        state_ = State::kDone;
        break;
      case State::kData:
      case State::kDone:
        break;
    }
  }
  return true;
}

}  // namespace quire
