#pragma once
// What comes back from an OpenAI-shaped server, request by request: when its pieces came, its text, its token counts.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "client/load_client.h"

namespace quire {

struct RequestOutcome {
  bool success = false;
  std::string error;         // why not, if not
  std::string text;          // generated
  double start = 0;          // when it was sent; seconds since the first request of the run was due
  double queue_time = 0;     // it waited so long in the client, in seconds
  double ttft = 0;           // seconds from start to the first piece that has choices
  double latency = 0;        // seconds from start to the last piece
  std::vector<double> itls;  // seconds between pieces
  int64_t prompt_tokens = -1, output_tokens = -1;  // as the server counts them; -1: it has not said
};

enum class AnswerShape : uint8_t { kStream, kWhole };  // server-sent events, or one JSON body

// Takes the answers of a LoadClient's run apart as they come.
class ServeAnswers {
 public:
  ServeAnswers(AnswerShape shape, size_t requests);
  ~ServeAnswers();
  ServeAnswers(const ServeAnswers&) = delete;
  ServeAnswers& operator=(const ServeAnswers&) = delete;

  using Time = LoadClient::Clock::time_point;
  // As those of LoadClient::Requests.
  void begin(size_t index, Time due, Time now);
  void answer(size_t index, int status, const std::string& reason);
  void body(size_t index, std::string_view bytes, Time now);
  void end(size_t index, Time now, const std::string& error);

  size_t ended() const { return ended_; }
  size_t output_pieces() const { return pieces_; }
  std::vector<RequestOutcome>& outcomes() { return outcomes_; }

 private:
  struct Reading;  // of an answer at work
  struct Json;
  void take_event(Reading& reading, RequestOutcome& outcome, std::string_view data, Time now);
  void take_whole(Reading& reading, RequestOutcome& outcome);

  AnswerShape shape_;
  std::vector<RequestOutcome> outcomes_;
  std::vector<std::unique_ptr<Reading>> readings_;
  std::vector<std::unique_ptr<Reading>> spare_;
  std::unique_ptr<Json> json_;
  Time origin_{};
  bool begun_ = false;
  size_t ended_ = 0, pieces_ = 0;
};

}  // namespace quire
