#pragma once
// Strict reading of a request's head (RFC 9112): what lenient parsers let through (folded lines, bare CR or LF, control
// characters, two framings, odd transfer codings) is refused, since two readers that disagree on it are how requests
// get smuggled.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "server/config.h"
#include "server/http_types.h"

namespace quire {

// What a head says. `fault` is the status to answer with (then the connection closes and nothing else is valid), 0 if
// there is none.
struct HttpHead {
  int fault = 0;
  const char* reason = "";

  HttpRequest request;    // all but body and peer
  int version_minor = 1;  // HTTP/1.x
  bool keep_alive = true;
  bool chunked = false;
  bool expect_continue = false;
  std::optional<uint64_t> content_length;
};

// head: from the first byte of the request line to the empty line (with it).
HttpHead parse_http_head(std::string_view head, const ServerConfig& limits);

// Undoes the chunked coding piece by piece; strict on every CR LF. Bounded: keeps only its state.
class ChunkedDecoder {
 public:
  // Takes bytes off the front of `input` and appends what they carry to `body`. Returns false on a framing error.
  bool feed(std::string_view& input, std::string& body);
  bool done() const { return state_ == State::kDone; }
  // Bytes of the chunk at hand that are still to come: lets the caller refuse a body before it arrives.
  uint64_t pending() const { return state_ == State::kData ? remaining_ : 0; }

 private:
  enum class State : uint8_t {
    kSize,
    kExtension,
    kSizeLf,
    kData,
    kDataCr,
    kDataLf,
    kTrailer,
    kTrailerLf,
    kEndLf,
    kDone
  };
  State state_ = State::kSize;
  uint64_t remaining_ = 0;
  int digits_ = 0;
  size_t line_bytes_ = 0;  // of an extension or of all trailers, limited
};

}  // namespace quire
