#pragma once
// Reads an HTTP/1.1 answer from bytes as they come, in pieces of any size. Nothing here knows of sockets.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace quire {

class AnswerParser {
 public:
  // What one call of feed() has taken. `body` points into the bytes given to it.
  struct Piece {
    size_t taken = 0;       // bytes; call again with the rest until it is 0
    std::string_view body;  // the next bytes of the body, its chunked coding taken away
  };

  // Throws Error(kUnavailable) saying what is wrong if the bytes are no HTTP answer or pass a limit (64 KiB in a header
  // line, 256 headers). Takes nothing once the answer is complete.
  Piece feed(std::string_view bytes);
  // The connection has ended. Throws Error(kUnavailable) if the answer had not.
  void end();
  void reset();  // for the next answer of the connection

  bool begun() const { return begun_; }  // a byte has come
  bool has_head() const { return state_ > State::kHeaders; }
  bool complete() const { return state_ == State::kComplete; }
  bool keep_alive() const { return keep_alive_ && complete(); }  // the connection takes another request
  int status() const { return status_; }
  const std::string& reason() const { return reason_; }

 private:
  enum class State : uint8_t { kStatus, kHeaders, kBody, kChunkSize, kChunk, kChunkEnd, kTrailers, kComplete };
  void take_line(std::string_view line);
  void take_status(std::string_view line);
  void take_header(std::string_view line);
  void end_head();
  void take_chunk_size(std::string_view line);

  State state_ = State::kStatus;
  bool begun_ = false, keep_alive_ = true, chunked_ = false;
  int status_ = 0, headers_ = 0;
  std::string reason_, line_;
  std::optional<uint64_t> left_;  // bytes of the body or the chunk; none: until the connection ends
};

}  // namespace quire
